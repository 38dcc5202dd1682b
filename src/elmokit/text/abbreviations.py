"""Abbreviations that keep their stop."""

# Followed by a name or a number: no sentence ends here.
TITLES = (
    "Mr|Mrs|Ms|Messrs|Mme|Mlle|Dr|Drs|Prof|Rev|Hon|Gen|Col|Maj|Capt|Cpt|Cmdr|Cdr|Lt|Sgt|Cpl|Pvt|Adm|Brig|Sen|Sens|Rep|Reps|"
    "Gov|Pres|Supt|Insp|Amb|Sec|Fr|Br|Bp|Msgr|St|Ste|Mt|Ft|Pt|Spec"
)
MONTHS = "Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept|Sep|Oct|Nov|Dec"
OTHERS = (
    "Inc|Corp|Co|Ltd|Bros|Jr|Sr|Esq|Ave|Blvd|Rd|Bldg|Dept|Univ|Assn|"
    "etc|vs|v|cf|viz|al|ca|approx|est|esp|ext|incl|max|min|misc|orig|fig|figs|eg|ie|ed|eds|vol|vols|pp|p|ch|chap|sec|"
    "Fig|Figs|Vol|Vols|Ch|Chap|Ed|Eds|Esp|Est|Ext|Attn|Tel|lb|lbs|oz|yrs|mins|hrs|"
    "Tue|Tues|Thu|Thur|Thurs|Ala|Ariz|Ark|Calif|Colo|Conn|Del|Fla|Ga|Ind|Kan|Ky|La|Md|Mich|Minn|Mo|Mont|Neb|Nev|Okla|Ore|Pa|Tenn|Tex|Va|Vt|Wis|Wyo|Que|Ont"
)
ABBREVIATIONS = (
    f"{TITLES}|{MONTHS}|{OTHERS}|(?:No|Nos|no|nos|Op|Art)(?=\\.\\s*\\d)|(?:Mon|Wed|Fri|Sat|Sun)(?=\\.[\\s,]+[\\d,])"
)
