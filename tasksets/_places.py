"""Countries with their capitals, and other cities that an answer may name instead.

A line is `country; other names | capital; other accepted names | region`. Where a capital is in dispute, or
there are two, the line is here so that the names are recognised, and `capitals` does not ask.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Country:
    """A country by all its names, its capital by all that a person would accept, and the region."""

    names: tuple[str, ...]
    capitals: tuple[str, ...]
    region: str

    @property
    def id(self) -> str:
        """The name in small letters, with hyphens: `united-states`."""
        return self.names[0].lower().replace(" ", "-")


@cache
def countries() -> tuple[Country, ...]:
    """Get every country, in the order of the table."""
    return tuple(_country(line) for line in TABLE.strip().splitlines())


def _country(line: str) -> Country:
    names, capitals, region = (part.strip() for part in line.split("|"))
    return Country(_names(names), _names(capitals), region)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(";"))


@cache
def other_cities() -> tuple[str, ...]:
    """Get well-known cities that are the capital of no country."""
    return tuple(name.strip() for name in OTHER_CITIES.replace("\n", " ").split(","))


TABLE = """
Afghanistan | Kabul | asia
Albania | Tirana; Tiranë | europe
Algeria | Algiers; Alger | africa
Andorra | Andorra la Vella | europe
Angola | Luanda | africa
Argentina | Buenos Aires; Ciudad Autónoma de Buenos Aires | south-america
Armenia | Yerevan; Erevan | asia
Australia; Commonwealth of Australia | Canberra | oceania
Austria | Vienna; Wien; Vienne; Viena | europe
Azerbaijan | Baku; Bakı | asia
Bahamas; The Bahamas | Nassau | north-america
Bahrain | Manama | asia
Bangladesh | Dhaka; Dacca | asia
Barbados | Bridgetown | north-america
Belarus | Minsk | europe
Belgium | Brussels; Bruxelles; Brussel; Brussels City | europe
Belize | Belmopan | north-america
Benin | Porto-Novo | africa
Bhutan | Thimphu; Thimbu | asia
Bolivia | Sucre; La Paz | south-america
Bosnia and Herzegovina; Bosnia | Sarajevo | europe
Botswana | Gaborone | africa
Brazil; Brasil | Brasília; Brasilia | south-america
Brunei | Bandar Seri Begawan | asia
Bulgaria | Sofia; Sofiya | europe
Burkina Faso | Ouagadougou | africa
Burundi | Gitega | africa
Cambodia; Kampuchea | Phnom Penh | asia
Cameroon | Yaoundé | africa
Canada | Ottawa | north-america
Cape Verde; Cabo Verde | Praia | africa
Central African Republic | Bangui | africa
Chad | N'Djamena; N Djamena; Ndjamena | africa
Chile | Santiago; Santiago de Chile; Santiago Chile | south-america
China; People's Republic of China; PRC | Beijing; Peking | asia
Colombia | Bogotá; Bogotá D.C.; Santa Fe de Bogotá | south-america
Comoros | Moroni | africa
Congo; Republic of the Congo | Brazzaville | africa
Democratic Republic of the Congo; DR Congo; DRC | Kinshasa | africa
Costa Rica | San José | north-america
Croatia | Zagreb | europe
Cuba | Havana; La Habana | north-america
Cyprus | Nicosia; Lefkosia | europe
Czech Republic; Czechia | Prague; Praha; Prag; Praga | europe
Denmark | Copenhagen; København; Kobenhavn; Kopenhagen | europe
Djibouti | Djibouti City | africa
Dominican Republic | Santo Domingo | north-america
Ecuador | Quito | south-america
Egypt | Cairo; El Cairo; Al-Qahira | africa
El Salvador | San Salvador | north-america
Equatorial Guinea | Malabo | africa
Eritrea | Asmara | africa
Estonia | Tallinn | europe
Eswatini; Swaziland | Mbabane; Lobamba | africa
Ethiopia | Addis Ababa; Addis Abeba; Adis Abeba | africa
Fiji | Suva | oceania
Finland | Helsinki; Helsingfors | europe
France; French Republic | Paris; City of Paris | europe
Gabon | Libreville | africa
Gambia; The Gambia | Banjul | africa
Georgia | Tbilisi; Tiflis | asia
Germany; Federal Republic of Germany; Deutschland | Berlin | europe
Ghana | Accra | africa
Greece; Hellas | Athens; Athen; Athina; Athinai; Αθήνα | europe
Guatemala | Guatemala City; Ciudad de Guatemala | north-america
Guinea | Conakry | africa
Guinea-Bissau | Bissau | africa
Guyana | Georgetown | south-america
Haiti | Port-au-Prince | north-america
Honduras | Tegucigalpa | north-america
Hungary | Budapest | europe
Iceland | Reykjavík | europe
India | New Delhi; Delhi | asia
Indonesia | Jakarta; Djakarta | asia
Iran | Tehran; Teheran | asia
Iraq | Baghdad; Bagdad | asia
Ireland; Republic of Ireland | Dublin; Baile Átha Cliath | europe
Israel | Jerusalem; Tel Aviv | asia
Italy; Italia | Rome; Roma | europe
Ivory Coast; Côte d'Ivoire | Yamoussoukro | africa
Jamaica | Kingston | north-america
Japan | Tokyo; Tōkyō; Tokio | asia
Jordan | Amman | asia
Kazakhstan | Astana; Nur-Sultan; Nursultan | asia
Kenya | Nairobi | africa
Kosovo | Pristina | europe
Kuwait | Kuwait City | asia
Kyrgyzstan | Bishkek | asia
Laos | Vientiane; Viangchan | asia
Latvia | Riga | europe
Lebanon | Beirut; Beyrouth | asia
Lesotho | Maseru | africa
Liberia | Monrovia | africa
Libya | Tripoli | africa
Liechtenstein | Vaduz | europe
Lithuania | Vilnius | europe
Luxembourg | Luxembourg City | europe
Madagascar | Antananarivo; Tananarive | africa
Malawi | Lilongwe | africa
Malaysia | Kuala Lumpur; KL | asia
Maldives | Malé | asia
Mali | Bamako | africa
Malta | Valletta; La Valletta | europe
Mauritania | Nouakchott | africa
Mauritius | Port Louis | africa
Mexico; México | Mexico City; Ciudad de México; CDMX; Mexico D.F. | north-america
Moldova | Chișinău; Kishinev | europe
Monaco | Monaco City; Monte Carlo | europe
Mongolia | Ulaanbaatar; Ulan Bator; Ulaan Baatar; Ulan Baator | asia
Montenegro | Podgorica | europe
Morocco | Rabat | africa
Mozambique | Maputo | africa
Myanmar; Burma | Naypyidaw; Nay Pyi Taw; Naypyitaw; Nay Pyi Daw | asia
Namibia | Windhoek | africa
Nepal | Kathmandu; Katmandu | asia
Netherlands; The Netherlands; Holland | Amsterdam | europe
New Zealand; Aotearoa | Wellington | oceania
Nicaragua | Managua | north-america
Niger | Niamey | africa
Nigeria | Abuja | africa
North Korea; DPRK | Pyongyang; P'yŏngyang | asia
North Macedonia; Macedonia | Skopje | europe
Norway | Oslo | europe
Oman | Muscat; Masqat | asia
Pakistan | Islamabad | asia
Panama | Panama City; Ciudad de Panamá | north-america
Papua New Guinea | Port Moresby | oceania
Paraguay | Asunción | south-america
Peru | Lima | south-america
Philippines; The Philippines | Manila; City of Manila | asia
Poland | Warsaw; Warszawa; Warschau | europe
Portugal | Lisbon; Lisboa; Lissabon | europe
Qatar | Doha | asia
Romania | Bucharest; București; Bucuresti; Bukarest | europe
Russia; Russian Federation | Moscow; Moskva; Moskau; Москва | europe
Rwanda | Kigali | africa
Samoa | Apia | oceania
Saudi Arabia | Riyadh; Riyad; Ar-Riyadh | asia
Senegal | Dakar | africa
Serbia | Belgrade; Beograd; Belgrad | europe
Sierra Leone | Freetown | africa
Slovakia; Slovak Republic | Bratislava | europe
Slovenia | Ljubljana | europe
Solomon Islands | Honiara | oceania
Somalia | Mogadishu | africa
South Africa | Pretoria; Cape Town; Bloemfontein | africa
South Korea; Republic of Korea; Korea | Seoul | asia
South Sudan | Juba | africa
Spain; España | Madrid | europe
Sri Lanka | Sri Jayawardenepura Kotte; Kotte; Colombo | asia
Sudan | Khartoum | africa
Suriname | Paramaribo | south-america
Sweden | Stockholm | europe
Switzerland | Bern; Berne; Berna | europe
Syria | Damascus | asia
Taiwan | Taipei | asia
Tajikistan | Dushanbe | asia
Tanzania | Dodoma | africa
Thailand | Bangkok; Krung Thep | asia
Togo | Lomé | africa
Tonga | Nuku'alofa | oceania
Trinidad and Tobago | Port of Spain | north-america
Tunisia | Tunis | africa
Turkey; Türkiye | Ankara; Angora | asia
Turkmenistan | Ashgabat | asia
Uganda | Kampala | africa
Ukraine | Kyiv; Kiev; Kyyiv; Київ | europe
United Arab Emirates; UAE | Abu Dhabi | asia
United Kingdom; UK; Great Britain; Britain; England | London | europe
United States; United States of America; USA; US; America | Washington D.C.; Washington DC; Washington; DC | north-america
Uruguay | Montevideo | south-america
Uzbekistan | Tashkent | asia
Vanuatu | Port Vila | oceania
Venezuela | Caracas | south-america
Vietnam; Viet Nam | Hanoi; Ha Noi; Hà Nội | asia
Yemen | Sana'a; Sanaa | asia
Zambia | Lusaka | africa
Zimbabwe | Harare | africa
"""  # noqa: E501, RUF001

OTHER_CITIES = """
New York City, New York, NYC, Los Angeles, Chicago, Houston, Philadelphia, Boston, San Francisco, Seattle,
Miami, Atlanta, Dallas, Denver, Detroit, Las Vegas, New Orleans, Toronto, Montreal, Vancouver, Calgary,
Edmonton, Winnipeg, Quebec City, Halifax, Guadalajara, Monterrey, Tijuana, Cancún, Acapulco, Rio de
Janeiro, Rio, São Paulo, Salvador, Belo Horizonte, Recife, Fortaleza, Córdoba, Rosario, Mendoza,
Valparaíso, Concepción, Medellín, Cali, Cartagena, Barranquilla, Guayaquil, Cusco, Cuzco, Arequipa,
Maracaibo, Santa Cruz, Cochabamba, Encarnación, Ciudad del Este, Sydney, Melbourne, Brisbane, Perth,
Adelaide, Hobart, Darwin, Auckland, Christchurch, Dunedin, Hamilton, Nadi, Lae, Manchester, Birmingham,
Liverpool, Leeds, Glasgow, Edinburgh, Cardiff, Belfast, Oxford, Cambridge, Cork, Galway, Lyon, Marseille,
Marseilles, Toulouse, Bordeaux, Lille, Strasbourg, Nantes, Versailles, Antwerp, Ghent, Bruges, Rotterdam,
The Hague, Den Haag, Utrecht, Munich, Hamburg, Frankfurt, Cologne, Stuttgart, Düsseldorf, Leipzig,
Dresden, Bonn, Zurich, Zürich, Geneva, Genève, Basel, Lausanne, Lucerne, Salzburg, Graz, Innsbruck, Linz,
Milan, Naples, Turin, Florence, Venice, Bologna, Genoa, Palermo, Barcelona, Valencia, Seville, Bilbao,
Granada, Malaga, Málaga, Porto, Faro, Gothenburg, Malmö, Uppsala, Bergen, Trondheim, Stavanger, Aarhus,
Odense, Turku, Tampere, Espoo, Akureyri, Kraków, Krakow, Cracow, Gdańsk, Wrocław, Poznań, Łódź, Brno,
Ostrava, Košice, Debrecen, Szeged, Cluj, Cluj-Napoca, Timișoara, Iași, Constanța, Plovdiv, Varna,
Thessaloniki, Patras, Novi Sad, Niš, Dubrovnik, Mostar, Maribor, Lviv, Kharkiv, Odesa, Odessa, Saint
Petersburg, St. Petersburg, St Petersburg, Leningrad, Novosibirsk, Vladivostok, Kaunas, Tartu, Daugavpils,
Istanbul, Constantinople, Izmir, Antalya, Bursa, Aleppo, Homs, Mecca, Makkah, Medina, Jeddah, Dammam,
Dubai, Sharjah, Aden, Salalah, Basra, Mosul, Isfahan, Shiraz, Mashhad, Tabriz, Kandahar, Herat, Almaty,
Alma-Ata, Samarkand, Bukhara, Osh, Karachi, Lahore, Rawalpindi, Peshawar, Faisalabad, Mumbai, Bombay,
Kolkata, Calcutta, Chennai, Madras, Bangalore, Bengaluru, Hyderabad, Pune, Agra, Jaipur, Chittagong,
Pokhara, Kandy, Paro, Yangon, Rangoon, Mandalay, Bagan, Chiang Mai, Phuket, Ho Chi Minh City, Saigon, Da
Nang, Hue, Haiphong, Siem Reap, Luang Prabang, Penang, George Town, Johor Bahru, Putrajaya, Singapore,
Quezon City, Cebu, Davao, Surabaya, Bandung, Medan, Denpasar, Nusantara, Shanghai, Hong Kong, Guangzhou,
Shenzhen, Nanjing, Xi'an, Chengdu, Wuhan, Tianjin, Chongqing, Macau, Kaohsiung, Osaka, Kyoto, Yokohama,
Nagoya, Sapporo, Hiroshima, Nagasaki, Fukuoka, Busan, Pusan, Incheon, Daegu, Darkhan, Erdenet, Alexandria,
Giza, Luxor, Casablanca, Marrakesh, Marrakech, Fez, Fes, Tangier, Agadir, Oran, Sfax, Benghazi, Omdurman,
Port Sudan, Lagos, Kano, Ibadan, Port Harcourt, Kumasi, Abidjan, Bouaké, Douala, Bobo-Dioulasso,
Saint-Louis, Timbuktu, Mombasa, Kisumu, Entebbe, Dar es Salaam, Zanzibar, Arusha, Bujumbura, Butare,
Mekelle, Gondar, Hargeisa, Beira, Blantyre, Zomba, Ndola, Livingstone, Bulawayo, Walvis Bay, Francistown,
Johannesburg, Durban, Port Elizabeth, Lubumbashi, Goma, Toamasina, Huambo, Lobito, Montego Bay, Santiago
de Cuba, Cap-Haïtien, San Pedro Sula, León, Antigua Guatemala, Quetzaltenango, Colón, Belize City, San
Juan, Lobamba, Alofi, Tarawa
"""
