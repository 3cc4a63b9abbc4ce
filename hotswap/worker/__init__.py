"""The warm process in which every taskset's own code runs, and the calls between it and us.

worker.py     Worker and OpenTaskset: what the eval process holds
calls.py      calls under way: time limits, whose fault a death was, what is sent again
process.py    one life of the process: its environment, its channel, its log
start.py      the first lines that run in it, in whatever Python it is
child.py      what serves the calls there
tasksets.py   a taskset built, and what its class says of itself
tasks.py      tasks read lazily, checked one by one
"""
