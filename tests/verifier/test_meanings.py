"""Counted nouns, approximations, units, dates, money, intervals, vectors and conditions: right and wrong answers."""

import pytest

from tests.verifier.test_equivalence import are_equal

# gold answer: (equal answers, unequal answers)
COUNTS = {
    "3 boys and 4 girls": (("4 girls and 3 boys", "3, 4", "3 males and 4 females"), ("4 boys and 3 girls", "4, 3",
      "4 males and 3 females")),
    "3, 4": (("4 boys and 3 girls",), ()),
    r"3\text{ apples}, 4\text{ pears}": ((r"4\text{ pears, } 3\text{ apples}", r"3\text{ apples and }4\text{ pears}"),
      (r"4\text{ apples}, 3\text{ pears}",)),
    r"\text{chickens: }5, \text{rabbits: }7": ((r"\text{rabbits: }7,\text{chickens: }5", "5 chickens and 7 rabbits"),
      (r"\text{chickens: }7,\text{rabbits: }5",)),
    r"\text{2 adults and 5 children}": ((r"\text{5 children and 2 adults}",), (r"\text{5 adults and 2 children}",)),
    "3 red balls and 4 blue balls": (("4 blue balls and 3 red balls",), ("4 red balls and 3 blue balls",)),
    r"5\text{ years older}": ((r"5\text{ years}", "5"), (r"5\text{ years younger}",)),
    r"5\text{ years ago}": ((), ("5 years later",)), "1, 2, 3 (in order)": (("1,2,3", "(1,2,3)"), ("3,2,1",)),
    r"3, 4 \text{ respectively}": (("3,4",), ("4,3",)), "3,4": (("3 and 4 respectively",), ()),
    "5": ((), (r"5 \approx 6",)),
    r"\frac{\sqrt3}{2}": ((r"\frac{\sqrt{3}}{2} (\approx 0.866)", r"\frac{\sqrt{3}}{2} (\approx 0.867)",
      r"\frac{\sqrt{3}}{2}\text{ (about }0.866)", r"\frac{\sqrt{3}}{2}\,(\text{approximately } 0.866)",
      r"\frac{\sqrt{3}}{2}\text{ (approximately 0.866)}", r"\frac{\sqrt{3}}{2}, \text{ or about } 0.866"),
      (r"\frac{\sqrt{3}}{2} (\approx 0.966)", r"\frac{\sqrt{2}}{2} (\approx 0.866)")),
    r"\frac{1}{3}": ((r"\frac13 \approx 33.3\%", r"\frac13 (about 0.33)"), (r"\frac13 (about 0.43)",)),
    r"\sqrt2": ((r"x=\sqrt2 \approx 1.41",), (r"x=\sqrt2 \approx 1.51",)),
    r"2\sqrt2\text{ cm}": ((r"2\sqrt2\text{ cm} (\approx 2.83\text{ cm})",),
      (r"2\sqrt2\text{ cm} (\approx 3.83\text{ cm})",)),
    r"2\pi r": ((r"2\pi r \approx 6.28 r",), ()),
    "42": ((r"42\ \text{(approximately)}", "42 (exactly)"), (r"42 \text{ (wrong)}",)),
    r"5\ \mathrm{N\cdot m}": ((r"5\text{ N m}", "5"), ("5 N",)),
    r"5\ \mathrm{\mu A}": ((r"5\ \mu\text{A}", r"5\text{ μA}", r"5\text{ microamperes}"), (r"5\text{ A}", "5 kg")),
    r"5\ \mathrm{kg\cdot m/s}": ((r"5\text{ kg m/s}",), (r"5\text{ kg}",)),
    r"5\,\mathrm{k\Omega}": ((), (r"5\text{ V}",)), r"5\,\mathrm{\Omega}": ((r"5\ \Omega", r"5\text{ ohms}"), ()),
    r"5\ \mathrm{\AA}": ((), (r"5\text{ m}",)), r"5\ \text{\AA}": ((), (r"5\text{ nm}",)),
    r"5\text{ words per minute}": ((r"5\text{ words per minute}", "5"), (r"5\text{ words per hour}",)),
    r"5\text{ light years}": ((r"5\text{ ly}",), (r"5\text{ years}",)),
    r"5\text{ light-years}": ((r"5\text{ light years}",), ()), r"5\text{ students per class}": (("5",), ()),
    r"12 \text{ apples are left}": (("12",), ()), r"5\text{ cm long}": (("5 cm",), ("5 m",)),
}  # fmt: skip

NOTATION = {
    "14 March": (("March 14", "March 14th"), ()), "March 14": (("14th of March",), ("15 March", "14 May")),
    r"\text{March 14, 2015}": (("14 March 2015",), ()), "March 14, 2015": ((), ("March 14, 2016",)),
    r"\text{July 4}": ((r"\text{4 July}",), ()), "14:30": (("2:30 pm",), ("2:30 am", "2:30", "14:31")),
    "2:30 pm": (("14:30",), ("2:30 a.m.",)), r"2:30 \text{ p.m.}": (("2:30 PM",), ()), "7 o'clock": (("7:00",), ()),
    "7:00 am": (("7 am",), ()), "0:30": (("12:30 am",), ()), "noon": (("12:00 pm",), ()),
    "3:00 pm": (("3:00 in the afternoon",), ("3 in the afternoon",)), "9:30": (("9{:}30",), ()),
    "1500000": ((r"\$1.5M",), ()), r"\$1.5M": ((r"\$1,500,000", "1.5 million dollars"), (r"\$1.5",)),
    r"\$5k": ((r"\$5000",), (r"\$500",)), r"\$1.5 million": ((), (r"\$1.5B",)),
    r"\$5": (("5 USD", "USD 5", r"US\$5"), ()), "-5": ((r"-\$5",), ()), r"\$5.50": (("5.5",), ()),
    "50 cents": ((r"\$0.50", r"\$.5"), (r"\$50", "€0.50")), r"\$0.50": (("50 cents",), ("5 cents",)),
    r"60^\circ": ((r"60\deg", "60 degrees"), (r"61\deg",)),
    "42": (("４２", "42元", r"42\text{ 个}"), ("４３", "42不对")),
    "5 cm": (("5厘米",), ("5米",)), "Yes": (("是",), ()), "(1,2)": (("（１，２）",), ()),
    "no solution": (("无解", "There is no solution", r"\text{There are no solutions}", "No solution exists",
      "The equation has no real solutions"), ("There is a solution", "There is one solution")),
    "does not exist": ((r"\text{The limit does not exist}",), ()),
    r"(-\infty,2]": ((r"]-\infty,2]", "(-oo,2]"), (r"]-\infty,2[", "(oo,2]")),
    r"(0,1)\cup(2,3]": ((r"]0,1[ \cup ]2,3]",), (r"[0,1[ \cup ]2,3]",)), "[0,1)": (("[0,1[", r"\left[0;1\right["), ()),
    "[0,1]": ((), ("[0,1[",)), r"3\mathbf{i}-2\mathbf{j}": ((r"3\mathbf i-2\mathbf j",), (r"3\mathbf i+2\mathbf j",)),
    r"3\hat{i}-2\hat{j}": ((r"3\mathbf i-2\mathbf j",), ()), r"3\hat i-2\hat j": ((r"3\vec i-2\vec j",), ()),
    "(3,-2)": ((r"3\mathbf i-2\mathbf j",), (r"3\mathbf i+2\mathbf j", r"-2\mathbf i+3\mathbf j", r"3\hat i-2\hat k")),
    r"\begin{pmatrix}3\\-2\end{pmatrix}": ((r"3\hat{i}-2\hat{j}",), ()), "(3,0,-2)": ((r"3\hat i-2\hat k",), ()),
    "(1,2,2)": (("i+2j+2k",), ()), "(1,2,3)": (("[1,2,3]^T",), ()),
    r"\begin{pmatrix}1\\2\\3\end{pmatrix}": (("[1,2,3]^T", "(1,2,3)^T", r"\begin{pmatrix}1&2&3\end{pmatrix}^T"),
      ("[1,3,2]^T",)),
    r"\begin{pmatrix}1&2&3\end{pmatrix}": ((), ("[1,2,3]^T",)),
    r"\begin{pmatrix}1&2\\3&4\end{pmatrix}": ((r"\begin{pmatrix}1&3\\2&4\end{pmatrix}^T",),
      (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}^T",)),
    "120": (("C(10,3)", "C_{10}^{3}", r"{10 \choose 3}"), ("C(10,4)",)),
    "10": (("C_5^2", "C_5^2=10", "C_5^3=10"), ("C_5^1",)), "C(10,3)": ((r"\binom{10}{3}",), ("(10,3)",)),
}  # fmt: skip

CONDITIONS = {
    "x+1": ((r"x+1,\ x\ne1", r"x+1 \ (x\neq 1)", r"x+1\text{ for }x\ne1", r"x+1\text{ where }x\ne1, x \ne 2"),
      (r"x+2,\ x\ne1", r"x+1,\ x=1", r"x+1,\ y\ne1")),
    r"\frac{2}{x}": ((r"\frac{2}{x},\quad x>0",), ()), "|x|": ((), ("x, x>0",)),
    "2^n": ((r"2^n\ (n\ge1)",), (r"2^n\ (n\ge3)",)), "a_n=2^n": ((r"a_n=2^n\ (n\in\mathbb N^*)",), ()),
    "2n+1": ((r"a_n=2n+1,\ n\in\mathbb{N}^*",), ()), "x>0": ((), (r"x>0, x\ne1",)),
    "x=2k": ((), ("x=2k, k>0", "x=2k, x>0")), r"2\pi k": ((), (r"2\pi k, k>0",)), "1,2": ((), (r"1,2, x\ne 3",)),
    "5": (("5 or 5", r"5\text{ (five)}"), (r"5, x\ne 1", "5 or 6", r"5\text{ (six)}")),
    r"x+1, x\ne 1": ((r"x+1, x\ne 1",), (r"x+1, x\ne 2",)),
    "f(x)=cx": ((r"f(x)=cx \text{ where } c \text{ is real}", r"f(x)=cx, \text{ where } c \text{ is a real number}",
      r"f(x)=cx\text{ for some real }c", r"f(x)=cx, c\in\mathbb{R}"),
      (r"f(x)=cx \text{ where } c \text{ is real and positive}", r"f(x)=cx \text{ where } c \text{ is positive}",
      r"f(x)=cx+1 \text{ where } c \text{ is real}")),
    r"\frac52": ((r"\frac52 \text{ or } 2.5", r"\frac{5}{2}\text{ (or }2.5)", r"2.5 \text{ (or } \frac52)"),
      (r"\frac52 \text{ or } 2.6",)),
    "2.5": ((r"\frac52 \text{ or } 2.5",), ()), "6": ((r"\text{six}\ (6)", "2(3)"), ("6(6)",)), "36": (("6(6)",), ()),
    "2,3": (("2 or 3",), ()), "2 or 3": (("2 or 3",), ("2",)), "x=2 or x=3": (("x=3 or x=2",), ()),
    r"5\text{ km}": ((), (r"500\text{ m}", r"5\text{ m}")), r"5\text{ kg}": ((r"5000\text{ g}",), ()),
}  # fmt: skip

FORMS = {
    "3:30 PM": (("15:30",), (r"\frac{3}{30}", "0.1", "6:60 PM", r"\frac1{10}")), "2:15:30": ((), (r"\frac{1}{225}",)),
    "1:2:3": (("2:4:6", r"\frac12:1:\frac32"), (r"\frac16", "1:2", "2:3:4", "1:2:3:4")),
    r"1:\sqrt3:2": ((r"\sqrt3:3:2\sqrt3",), (r"\frac{1}{2\sqrt3}", r"1:2:\sqrt3")),
    "3:4": (("3 to 4", r"3\text{ to }4"), ("3 to 5",)), "3 to 4": (("3:4",), ("6 to 8",)),
    r"\textbf{(C)}\ 10": ((r"\text{C. }10", "C"), (r"\textbf{(C)}\ 11", "C. 11")),
    "B": ((r"\text{B: } x^2", "选项B"), (r"\text{C: } x^2",)), "64": (("2^6",), (r"2^{3}^{2}",)),
    r"\log_2 3": ((r"\ln 3/\ln 2", r"\lg 3/\lg 2", r"\log_5 3/\log_5 2"), (r"\ln 2/\ln 3", r"\ln (3/\ln 2)")),
    r"\tan\theta": ((r"\sin\theta/\cos\theta",), (r"\cos\theta/\sin\theta",)),
    r"\frac{1}{x-1}, x \ne 1": ((r"\frac{1}{x-1}\ (x\neq 1)", r"\frac{1}{x-1},\text{ where }x\ne1",
      r"\frac{1}{x-1}\text{ if }x\ne1"), (r"\frac{1}{x-1}\ (x\neq 2)", r"\frac{1}{x+1}\text{ if }x\ne1")),
    r"x\in\mathbb{Z}": ((r"x\in\mathbf{Z}", r"x\in\Bbb Z"), (r"x\in\mathbf{N}",)),
    r"\mathbb{R}\setminus\{0\}": ((r"\mathbf{R}\setminus\{0\}", r"\mathbb{R}-\{0\}"), (r"\mathbf{R}\setminus\{1\}",)),
    r"\begin{cases}1&x>0\\0&\text{otherwise}\end{cases}": ((r"\begin{cases}1&x>0\\0&\text{else}\end{cases}",
      r"\begin{cases}1&x>0\\0&x\le0\end{cases}"), (r"\begin{cases}1&x>0\\0&x<0\end{cases}",
      r"\begin{cases}0&x>0\\1&\text{else}\end{cases}")),
    r"\binom{n}{k}": (("C(n,k)", "C_n^k", "{}_nC_k"), ("C(k,n)",)), "C_n^k": ((r"\binom{n}{k}",), (r"\binom{k}{n}",)),
    r"\binom{2n}{n}": (("C_{2n}^n", r"\frac{(2n)!}{(n!)^2}"), (r"\frac{(2n)!}{n!}",)),
    "120": (("A_6^3", "{}_6P_3"), ("A_6^2",)), "101_2": (("{101}_2", "101_{(2)}", r"101_{\text{bin}}"), ("101_{(3)}",)),
    "2B_{16}": ((r"2\text{B}_{16}", r"2\mathrm{B}_{16}", r"2B_{\text{hex}}"), (r"2\text{C}_{16}",)),
    "f(x)=x^2+1": (("f(t)=t^2+1",), ("f(t)=x^2+1", "g(t)=t^2+1")), "f(x)=ax": ((), ("f(a)=ax", "f(a)=a^2")),
    r"-\infty": ((r"\text{negative infinity}", "minus infinity"), (r"\text{infinity}",)),
    r"\infty": ((r"\text{positive infinity}", "+\\infty"), (r"\text{negative infinity}",)),
    r"\text{red, blue, green}": ((r"\text{red, blue, and green}",), (r"\text{blue, red, and green}",)),
    "no solution": ((r"\text{None}",), ("one",)), "5": (("答案：5", "答案是5", "共5个"), ("答案：6",)),
    "-3": (("﹣3",), ("﹣2",)),
    r"\frac{3}{4}": ((r"\nicefrac{3}{4}", r"\sfrac34", "^3/_4", r"{}^3/_4"), (r"\nicefrac{4}{3}", "^4/_3")),
    r"\sqrt[3]{2}": ((r"\root 3 \of 2", r"\root{3}\of{2}"), (r"\root 2 \of 3",)),
    r"(0,1)\cup(2,3)": ((r"(0,1)\bigcup(2,3)",), (r"(0,1)\bigcap(2,3)",)),
    r"5\text{ cm}": ((r"5 \, \rm{cm}", r"5 \rm{ cm}"), (r"5 \rm{m}",)), "5 km": (("5000 m", "5km"), ("5 m", "500 m")),
}  # fmt: skip

SIGNS = {
    r"x \equiv 3 \pmod 7": ((r"x \equiv 10 \pmod 7", r"3 \pmod{7}", r"x \equiv -4 \pmod 7"),
      (r"x \equiv 4 \pmod 7", r"x \equiv 3 \pmod 8")),
    r"\pm 2 \pmod 5": ((r"2, 3 \pmod 5", r"3, 2 \pmod 5"), (r"2, 4 \pmod 5", r"2 \pmod 5")),
    "£5": (("5", "5 pounds"), ("$5", r"\$5", "€5")), r"\$5": ((r"5\text{ dollars}",), ("£5", "￥5")),
    "3x": (("3 x",), ("C_3^2 x",)), "C_3^2 x": (("x C_3^2",), ("3x",)), "0": ((), ("C_3^4",)),
    "12": (("1２", "𝟏𝟐"), ("1３", "١٢")),
}  # fmt: skip


@pytest.mark.parametrize("table", [COUNTS, NOTATION, CONDITIONS, FORMS, SIGNS])
def test_answers_of_another_form_get_their_verdict(table: dict[str, tuple[tuple[str, ...], tuple[str, ...]]]) -> None:
    for gold, (right, wrong) in table.items():
        assert [answer for answer in right if not are_equal(gold, answer)] == [], gold
        assert [answer for answer in wrong if are_equal(gold, answer)] == [], gold
