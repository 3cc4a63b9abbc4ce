"""What a run needs beside us, prepared once a machine: environments of scripts, packages of models.

Everything is in one cache folder: `HOTSWAP_CACHE`, else `hotswap` in the user's cache folder. It may be
deleted whenever no run is going on.

    scripts/NAME-KEY/NAME.pyc    a script that needs nothing, compiled
    etc/KEY/                     what closed boxes see as /etc
    envs/NAME-KEY/               a script's environment, made by uv
    wheels/NAME-KEY/             packages for one purpose, to be put on a Python path
    portable/NAME-KEY/           a program with its libraries, to be mounted in a box that has none
    certificates/KEY/            the certificates that this machine trusts, likewise
    logs/NAME-KEY.log            what uv said while it made the last of them
    locks/NAME-KEY.lock          held while something is made; two processes make it once

KEY is a hash of all that went in, so a change makes a new one beside the old. What is there is used as it is:
uv is not started, and the network is not needed.
"""

from hotswap.provision.bundles import Bundle, Recipe, bundled
from hotswap.provision.cache import cache_root, locked
from hotswap.provision.packages import wheels
from hotswap.provision.portable import python as portable_python
from hotswap.provision.scripts import Program, script
from hotswap.provision.trust import Certificates, certificates
from hotswap.provision.uv import uv_binary

__all__ = [
    "Bundle",
    "Certificates",
    "Program",
    "Recipe",
    "bundled",
    "cache_root",
    "certificates",
    "locked",
    "portable_python",
    "script",
    "uv_binary",
    "wheels",
]
