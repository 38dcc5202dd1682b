"""English tokens, by example."""

import pytest

from elmokit.text import load_tokenizer

# The text, and its tokens with spaces between them.
CASES = [
    # contractions and possessives
    ("I don't know.", "I do n't know ."),
    ("He can't, won't, SHOULDN'T, ain't.", "He ca n't , wo n't , SHOULD N'T , ai n't ."),
    ("We cannot go, you Cannot stay", "We can not go , you Can not stay"),
    ("I'm sure it's what they'd do", "I 'm sure it 's what they 'd do"),
    ("we've seen they're late, you'll see", "we 've seen they 're late , you 'll see"),
    ("It’s Tom’s, isn’t it?", "It ’s Tom ’s , is n’t it ?"),
    ("the dog's bone and the dogs' bones", "the dog 's bone and the dogs ' bones"),
    ("I'm gonna go, wanna stay, Gotta run", "I 'm gon na go , wan na stay , Got ta run"),
    ("they didnt, dont, Isnt", "they did nt , do nt , Is nt"),
    ("its wont cant lets were", "its wont cant lets were"),  # words of their own
    ("'Twas brillig; 'tis so", "'T was brillig ; 't is so"),
    ("Give 'em time 'til noon in the '60s.", "Give 'em time 'til noon in the '60s ."),
    ("Nothin' doin', he said", "Nothin' doin' , he said"),
    ("'Come in', he said, 'again'.", "' Come in ' , he said , ' again ' ."),
    ("O'Neill came at five o'clock", "O'Neill came at five o'clock"),
    ("the 1960's and 1995's best", "the 1960's and 1995 's best"),
    ("it 's tokenised , is n't it", "it 's tokenised , is n't it"),
    # hyphens and dashes
    ("a well-known 15-year-old e-mail", "a well - known 15 - year - old e-mail"),
    ("non-stop co-founder mid-1980s Pre-War", "non-stop co-founder mid-1980s Pre-War"),
    ("over-the-counter E-767 Jean-Paul", "over - the - counter E - 767 Jean - Paul"),
    ("Call 713-853-3989 or 345-9945 on 2001-09-11", "Call 713-853-3989 or 345-9945 on 2001-09-11"),
    ("pages 5-10, 1939–45, 1969-1970", "pages 5 - 10 , 1939 – 45 , 1969 - 1970"),
    ("him--that is—or so", "him -- that is — or so"),
    # abbreviations and initials
    ("Mr. J. R. Smith of the U.S. Army", "Mr. J. R. Smith of the U.S. Army"),
    ("A vs. B, Acme Inc. of Va., etc., i.e. us", "A vs. B , Acme Inc. of Va. , etc. , i.e. us"),
    ("I live in the U.S.", "I live in the U.S ."),
    ('He said "at 5 p.m."', 'He said " at 5 p.m . "'),
    ("a Ph.D. and B.Sc. from", "a Ph.D. and B.Sc. from"),
    ("No. 5 said no. Never", "No. 5 said no . Never"),
    ("you and I. Plan B. is", "you and I . Plan B. is"),
    # numbers, money, units
    ("$1,200.50 or US$20m, 5% at 7:30PM", "$ 1,200.50 or US$ 20 m , 5 % at 7:30 PM"),
    ("£3.5bn, +44, .5, 9/11, 20th", "£ 3.5 bn , +44 , .5 , 9/11 , 20th"),
    ("3days, 10km, B2B, CO2, 83N", "3 days , 10 km , B2B , CO2 , 83N"),
    # addresses and files
    ("See http://en.wikipedia.org/wiki/Foo_(bar), ok", "See http://en.wikipedia.org/wiki/Foo_(bar) , ok"),
    ("(https://example.org/x?y=z#q).", "( https://example.org/x?y=z#q ) ."),
    ("www.a.com/b, a_b.c-d@enron.com.", "www.a.com/b , a_b.c-d@enron.com ."),
    ("example.co.uk, Amazon.com; notes_v2.doc.", "example.co.uk , Amazon.com ; notes_v2.doc ."),
    ("comp.sources.unix 3com.com", "comp.sources.unix 3com.com"),
    # marks
    ("Well...what?! Yes!!!", "Well ... what ?! Yes !!!"),
    ('"Quoted," “he said”.', '" Quoted , " “ he said ” .'),
    ("(a) [b] {c} <d>", "( a ) [ b ] { c } < d >"),
    ("AT&T R&D w/o him/her and/or", "AT&T R&D w/o him / her and / or"),
    ("rock 'n' roll, ships, &c., C++ &amp; C#", "rock 'n' roll , ships , &c. , C++ &amp; C#"),
    ("Thanks:) ;-) :D ^_^", "Thanks :) ;-) :D ^_^"),
    ("*** --- == ____ _Not_ a_b", "*** --- == ____ _ Not _ a_b"),
    ("-> <- ==> #1", "-> <- ==> # 1"),
    ("end.Start,a;b:c", "end . Start , a ; b : c"),
    # other scripts and pictures
    ("naïve, e\u0301te\u0301 Straße Ωμέγα.", "naïve , e\u0301te\u0301 Straße Ωμέγα ."),
    ("👍🏽👩‍👩‍👧‍👦🇩🇪ok ❤️", "👍🏽 👩‍👩‍👧‍👦 🇩🇪 ok ❤️"),
    ("so\u00adft co\u200dop", "so\u00adft co\u200dop"),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_cuts(text: str, expected: str) -> None:
    sentence = load_tokenizer("english").tokenize(text)
    assert sentence.tokens == tuple(expected.split(" "))
    assert sentence.text == text
    assert sentence.offsets is not None
    assert tuple(text[a:b] for a, b in sentence.offsets) == sentence.tokens
