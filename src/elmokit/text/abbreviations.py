"""English abbreviations that keep their stop, by what may follow them; words apart by spaces."""

# A name or a number follows: no sentence ends here.
TITLES = (
    "Mr Mrs Ms Messrs Mme Mlle Dr Drs Prof Rev Hon Gen Col Maj Capt Cpt Cmdr Cdr Lt Sgt Cpl Pvt Adm Brig Sen Sens Rep "
    "Reps Gov Pres Supt Insp Amb Sec Fr Br Bp Msgr St Ste Mt Ft Pt Spec Attn"
)
MONTHS = "Jan Feb Mar Apr Jun Jul Aug Sept Sep Oct Nov Dec"
DAYS = "Mon Tue Tues Wed Thu Thur Thurs Fri Sat Sun"
# Words of their own unless a number follows.
BEFORE_NUMBER = "No Nos no nos Op op Art art Ph Para Sc Act Bk"
# Something follows within the sentence.
INNER = (
    "vs v cf viz ca approx esp ext incl eg ie ed eds vol vols pp p ch chap fig figs Fig Figs Vol Vols Ch Chap Ed Eds "
    "Esp Est est Ext Tel orig misc"
)
# May end a sentence.
CLOSING = (
    "Inc Corp Co Ltd Bros Jr Sr Esq Ave Blvd Rd Bldg Dept Univ Assn etc al lb lbs oz yrs mins hrs max min "
    "Ala Ariz Ark Calif Colo Conn Del Fla Ga Kan Ky La Md Mich Minn Mo Mont Neb Nev Okla Ore Pa Tenn Tex Va Vt Wis "
    "Wyo Que Ont"
)
ABBREVIATIONS = f"{TITLES} {MONTHS} {INNER} {CLOSING}"
# Words that begin sentences and hardly ever follow an abbreviation within one.
STARTERS = (
    "A After All Although An And Another Are As At Because Before Both But By Can Did Do Does During Each Even For "
    "From Has Have He Her Here His How However I If In Is It Its Just Let Many May Maybe More Most My No Not Now On "
    "Once One Only Or Other Our Please She Since So Some Such Thanks That The Their Then There These They This Those "
    "Though Through To Today Under Until Was We Well Were What When Where Which While Who Why Will With Would Yes Yet "
    "You Your"
)
# Words as short as abbreviations that are none.
SHORT = "ago all are be day do go her him in is it me not now off on one out so too up us was way yet you"
