r"""Hand-written answers in the style of AIME, MATH, OlympiadBench, Minerva and GSM8K.

They were written before the verifier was run on them. Each line is `gold || answer`. The pairs of the first list are
equal, those of the second unequal, mostly near misses.
"""

EQUAL = r"""
204 || 204
204 || 0204
025 || 25
073 || 73
113 || 113.0
809 || m+n = 809
385 || 5\cdot 7 \cdot 11
468 || \textbf{468}
197 || p+q=47+150=197
601 || 601\text{ (mod }1000)
55 || \binom{11}{2}
540 || 540^\circ
2^{2016} || 4^{1008}
2^{100}-1 || 1267650600228229401496703205375
10! || 3628800
\frac{10!}{2} || 5\cdot 9!
3^{2^{3}} || 6561
\frac{\sqrt{3}}{3} || \frac{1}{\sqrt{3}}
6 - 4\sqrt{2} || (2-\sqrt{2})^2
\frac{3+\sqrt{5}}{2} || \left(\frac{1+\sqrt5}{2}\right)^2
\sqrt[3]{16} || 2\sqrt[3]{2}
\sqrt[4]{4} || \sqrt{2}
\frac{14\sqrt{3}}{5} || 14\sqrt3/5
\frac{14\sqrt{3}}{5} || 14/5\sqrt3
-\frac{7}{25} || \frac{-7}{25}
-\frac{7}{25} || \frac{7}{-25}
-\frac{7}{25} || -0.28
\frac{1}{2^{98}} || 2^{-98}
1\frac{3}{4} || 1.75
1\frac{3}{4} || 7/4
12\pi || 12 \cdot \pi
\frac{9\pi}{4} || \frac94\pi
\frac{9\pi}{4} || 2.25\pi
16\pi\text{ cm}^2 || 16\pi
16\pi || 16\pi \text{ square inches}
e^{-2} || \frac{1}{e^2}
\ln 2 || \log_e 2
\log_2 3 || \frac{\ln 3}{\ln 2}
x^3+3x-6 || x^3 + 3x - 6
(x-2)(x+3) || x^2+x-6
(3x-7)(x+2) || (x+2)(3x-7)
7(x-3)(x+3) || 7(x^2-9)
-2x^2+8x+15 || 15+8x-2x^2
p^2-q || p^2 - q
\frac{x+1}{x-1} || 1+\frac{2}{x-1}
\frac{x+1}{x-1} || -\frac{x+1}{1-x}
2n^2-n || n(2n-1)
n(n+1)/2 || \binom{n+1}{2}
2^n-1 || 2^{n}-1
2^{n-1} || \frac{2^n}{2}
4^n || 2^{2n}
\frac{a^2+b^2}{ab} || \frac{a}{b}+\frac{b}{a}
\sin 2\theta || 2\sin\theta\cos\theta
\tan^2 x || \sec^2 x - 1
|x-3| || \lvert 3-x \rvert
\sqrt{(x-1)^2} || |x-1|
\lfloor n/2 \rfloor || \left\lfloor\frac{n}{2}\right\rfloor
(n-1)! || (n-1)!
(n-1)! || \frac{n!}{n}
\frac{(2n)!}{n!\,n!} || \binom{2n}{n}
\sum_{k=1}^{n} k || \frac{n(n+1)}{2}
y = 2x + 3 || 2x - y + 3 = 0
y=2x+3 || 2x+3
x^2+y^2=25 || y^2 + x^2 - 25 = 0
x=4 || 4
x = -2, 5 || x=5 \text{ or } x=-2
-2, 5 || \{-2,5\}
-2,5 || (-2,5)
(-2,5) || \left(-2, 5\right)
\left( \frac{1}{2}, -3 \right) || (0.5,-3)
(1,2),(3,4) || (3,4),(1,2)
(1,2),(3,4) || (1,2) \text{ and } (3,4)
(3, \frac{\pi}{2}) || \left(3,\frac{\pi}{2}\right)
[0,1) || 0 \le x < 1
(-\infty, 3] || x \leq 3
(-\infty,-1)\cup(2,\infty) || x<-1 \text{ or } x>2
(-\infty,-1)\cup(2,\infty) || (2,\infty)\cup(-\infty,-1)
[-1,1] || |x| \le 1
(1,5) || |x-3|<2
(-\infty,1)\cup(5,\infty) || |x-3|>2
a > 3 || a \in (3, \infty)
(3,\infty) || a > 3
\mathbb{R}\setminus\{0\} || (-\infty,0)\cup(0,\infty)
x \neq 0 || (-\infty,0)\cup(0,\infty)
\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} || \begin{bmatrix}1&2\\3&4\end{bmatrix}
\begin{pmatrix} -1/2 \\ 3 \end{pmatrix} || \begin{pmatrix} -\frac12 \\ 3 \end{pmatrix}
\begin{pmatrix} 5 \\ -3 \end{pmatrix} || (5,-3)
\begin{pmatrix} 5 \\ -3 \end{pmatrix} || \langle 5, -3 \rangle
\mathbf{i}+2\mathbf{j} || \vec{i}+2\vec{j}
\text{Evelyn} || Evelyn
\text{Tuesday} || tuesday
\text{odd} || \textbf{odd}
\text{neither} || \mathrm{neither}
\text{Yes} || yes
\text{True} || true
\text{parabola} || \text{a parabola}
\text{two lines} || two lines
\text{June 5} || June 5
\text{March 14, 2015} || March 14, 2015
\text{Friday, May 3} || Friday, May 3
\text{A, C, D} || A, C, D
\text{A, C, D} || D, A, C
\text{(A), (C)} || A, C
B, D || \text{B and D}
\text{Alice and Bob} || Bob and Alice
\text{(B)} || B
\textbf{(E)}\ 42 || E
\textbf{(E)}\ 42 || 42
\text{infinitely many} || infinitely many
\infty || \text{infinity}
\infty || +\infty
-\infty || -\text{infinity}
\text{no real solutions} || no real solutions
\emptyset || \{\}
3:45 || 3:45
\text{3:45 p.m.} || 3:45 PM
\text{9:30 am} || 9:30 \text{ AM}
\text{7 p.m.} || 7:00 PM
\text{noon} || 12:00 PM
\$18.90 || 18.90
\$18.90 || \$18.9
18 || \$18.00
1,250 || \$1250
70000 || 70,000 dollars
64 || 64 apples
20 \text{ minutes} || 20
25\% || \frac{1}{4}
25\% || 0.25
12 \text{ cm}^2 || 12 \text{ square centimeters}
5 \text{ m/s} || 5\ \mathrm{m/s}
45^\circ || 45
60^\circ || 60 \text{ degrees}
f(x)=x || f(x) = x
f(x)=0, f(x)=x || f(x)=x \text{ and } f(x)=0
f(x)=2x+c || f(x) = 2x + c
(a,b,c)=(1,2,3) || (1,2,3)
a=1, b=2, c=3 || (1,2,3)
a=1,b=2 || b=2,a=1
(m,n)=(1,1),(2,3) || (1,1),(2,3)
n \equiv 1 \pmod 3 || n \equiv 1 \pmod{3}
n=3k+1 || n = 3k + 1
2,3,5,7 || 7,5,3,2
\{1,2,3\} || 1, 2, 3
\pm 3 || 3, -3
\pm\sqrt{2} || \sqrt2 \text{ or } -\sqrt2
1 \pm 2i || 1+2i, 1-2i
3+4i || 4i+3
e^{i\pi/3} || \frac12+\frac{\sqrt3}{2}i
\frac{\pi}{4}+k\pi || k\pi + \frac{\pi}{4}
3:4:5 || 6:8:10
ABC || ABC
\overline{AB} || AB
\vec{v} || v
1000000 || 10^6
1.5 \times 10^{8} || 150000000
1234_5 || 1234_{5}
0.\overline{12} || \frac{4}{33}
4.5e33 || 4.5 \times 10^{33}
1.6e-19 || 1.6 \cdot 10^{-19} \text{ C}
\frac{m v^2}{2} || \frac{1}{2} m v^2
\sqrt{\frac{2 g h}{3}} || \sqrt{2gh/3}
\frac{G M}{r^2} || GM r^{-2}
e^{-t/\tau} || \exp(-t/\tau)
v_0 \cos\theta || v_{0}\cos(\theta)
\hbar \omega || \omega\hbar
\frac{1}{1+x^2} || (1+x^2)^{-1}
A e^{-kt} || A \exp(-k t)
(n!)^2 || n!^2
\text{three} || 3
12 || \text{twelve}
7 || seven
336 || 336
336 || \text{Answer: } 336
70 || a+b+c = 70
\frac{27}{128} || 27/128
293 || \boldsymbol{293}
2^{13}\cdot 3^{5} || 8192\cdot 243
2024^2-1 || 2023\cdot2025
\frac{2\sqrt{13}}{13} || \frac{2}{\sqrt{13}}
\sqrt{7+4\sqrt3} || 2+\sqrt{3}
\tan 15^\circ || 2-\sqrt{3}
\arctan\frac{1}{2} || \tan^{-1}(1/2)
\frac{\pi}{6} || 30^\circ
x^2-4x+7 || (x-2)^2+3
\frac{1}{n(n+1)} || \frac1n-\frac1{n+1}
3^{n}-2^{n} || -2^n+3^n
\frac{n^2(n+1)^2}{4} || \left(\frac{n(n+1)}{2}\right)^2
(2n-1)!! || \frac{(2n)!}{2^n n!}
\binom{n}{3} || \frac{n(n-1)(n-2)}{6}
2^{k+1}-2 || 2(2^k-1)
\lceil \frac{2n}{3} \rceil || \left\lceil 2n/3 \right\rceil
\lfloor \frac{n^2}{4} \rfloor || \left\lfloor \frac{n}{2}\right\rfloor \left\lceil \frac n2 \right\rceil
y=-\frac{3}{4}x+5 || 3x+4y=20
\frac{x^2}{9}+\frac{y^2}{4}=1 || 4x^2+9y^2=36
x+2y-3z+4=0 || -x-2y+3z-4=0
(-\infty,-2]\cup[2,\infty) || |x|\ge 2
[3,7] || |t-5| \leq 2
(2,3)\cup(3,\infty) || x>2, x\neq 3
(0,\infty) || \mathbb{R}^+
0<a<\frac14 || a\in\left(0,\tfrac14\right)
\text{July 4} || \text{4 July}
\text{Monday and Friday} || Friday and Monday
\text{B, D, E} || (B), (D), (E)
\text{blue} || The blue
(D) || D: 15
\text{6:15 a.m.} || 6:15 AM
\text{midnight} || 12:00 a.m.
8\text{ a.m.} || 8 AM
\$2.50 || 2.5 \text{ dollars}
4 || \text{four}
\text{zero} || 0
3,600 || 3600
15 || 15 \text{ years old}
15 || 15 years
62.5\% || \frac58
f(n)=n+1 || f(n)=1+n
f(x)=cx || f(x)=c x
(1,2,3),(3,2,1) || (3,2,1),(1,2,3)
(2,1), (3,1) || \{(3,1),(2,1)\}
n=1,2,4 || \{1,2,4\}
n \equiv 0,1 \pmod 4 || n\equiv 0,1 \pmod{4}
\text{all primes} || all primes
\overline{PQ} || PQ
\hat{\imath}-\hat{k} || \hat{\imath}-\hat{k}
2\hat{i}-3\hat{j} || 2\vec{i}-3\vec{j}
\vec{a}+2\vec{b} || 2\vec b+\vec a
\frac{e^{2x}}{2}+C || \frac12 e^{2x}+C
\frac{k_B T}{m} || k_BT/m
6.02e23 || 6.02\times10^{23}\text{ mol}^{-1}
-0.5 || -\frac12
RC\ln 2 || CR \ln(2)
2\cdot n! || 2n!
n!^2 || (n!)^2
"""

UNEQUAL = r"""
204 || 240
809 || m + n = 890
385 || 5 \cdot 7 \cdot 13
468 || \textbf{486}
197 || p+q=47+150=198
55 || \binom{10}{2}
2^{2016} || 2^{2015}
2^{100}-1 || 1267650600228229401496703205376
10! || 3628801
\frac{10!}{2} || 9!
3^{2^{3}} || 729
\frac{\sqrt{3}}{3} || \frac{1}{3\sqrt{3}}
6 - 4\sqrt{2} || (2+\sqrt{2})^2
\frac{3+\sqrt{5}}{2} || \frac{3-\sqrt{5}}{2}
\sqrt[3]{16} || 4\sqrt[3]{2}
\frac{14\sqrt{3}}{5} || \frac{14}{5\sqrt3}
-\frac{7}{25} || 0.28
\frac{1}{2^{98}} || 2^{-99}
1\frac{3}{4} || \frac{3}{4}
12\pi || 37.7
12\pi || \pi 12
\frac{9\pi}{4} || \frac{9}{4\pi}
16\pi || 32\pi \text{ square inches}
e^{-2} || e^2
\log_2 3 || \frac{\ln 2}{\ln 3}
x^3+3x-6 || x^3+3x+6
(x-2)(x+3) || x^2-x-6
7(x-3)(x+3) || 7(x+3)^2
p^2-q || q-p^2
\frac{x+1}{x-1} || \frac{x-1}{x+1}
2n^2-n || n(2n+1)
\frac{n(n+1)}{2} || \frac{n(n-1)}{2}
2^n - 1 || 2^{n-1}
4^n || 2^{n^2}
\frac{a^2+b^2}{ab} || \frac{(a+b)^2}{ab}
\sin 2\theta || 2\sin\theta
\tan^2 x || \tan x^2
|x-3| || x-3
\lfloor n/2 \rfloor || \lceil n/2 \rceil
\lfloor n/2 \rfloor || \frac n2
(n-1)! || n!-1
\binom{2n}{n} || \binom{2n}{n-1}
n^{n-2} || n^{n-1}
y = 2x + 3 || y = 3x + 2
x^2+y^2=25 || x^2+y^2=5
x=4 || y=4
4 || x=-4
x = -2, 5 || x=2 \text{ or } x=5
(-2,5) || (5,-2)
(-2,5) || [-2,5]
\left( \frac{1}{2}, -3 \right) || (-3,0.5)
\left( \frac{1}{2}, -3 \right) || (\frac12, 3)
(1,2),(3,4) || (2,1),(4,3)
(1,2),(3,4) || (1,2)
(3, \frac{\pi}{2}) || (3, \pi/3)
[0,1) || 0 < x \le 1
[0,1) || [0,1]
(-\infty, 3] || x < 3
(-\infty,3] || x \ge 3
(-\infty,-1)\cup(2,\infty) || (-1,2)
[-1,1] || |x| < 1
(1,5) || |x-2|<3
(-\infty,1)\cup(5,\infty) || |x-3| \geq 2
a>3 || a \in [3,\infty)
\mathbb{R}\setminus\{0\} || (-\infty,0]\cup(0,\infty)
k<-1 || k < 1
\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} || \begin{pmatrix} 1 & 3 \\ 2 & 4 \end{pmatrix}
\begin{pmatrix} 5 \\ -3 \end{pmatrix} || \begin{pmatrix} -5 \\ 3 \end{pmatrix}
\text{Evelyn} || Evelyn's
\text{Carla} || \text{Debra}
\text{Saturday} || Sunday
\text{odd} || even
\text{Yes} || No
\text{ellipse} || \text{hyperbola}
\text{June 5} || June 6
\text{June 5} || 5
\text{March 14, 2015} || March 15, 2014
\text{A, C, D} || A, C
B, D || B, C
\text{Alice, Bob} || Alice, Carl
\text{red, blue} || red
\text{(B)} || (D)
\textbf{(E)}\ 42 || (D) 42
\infty || -\infty
\emptyset || \{0\}
\emptyset || 0
\text{3:45 p.m.} || 3:45 a.m.
10:05 || 10:50
\text{7 p.m.} || 7 a.m.
\$18.90 || \$19.80
1250 || 1.250
0.75 || 75 cents
64 || 46 apples
20 \text{ minutes} || 20 \text{ hours}
25\% || 2.5
5 \text{ m/s} || 5 \text{ km/h}
45^\circ || 54^\circ
f(x)=x || f(x)=-x
f(x)=2x+c || f(x)=2x
(a,b,c)=(1,2,3) || (3,2,1)
a=1,b=2 || a=2,b=1
(m,n)=(1,1),(2,3) || (1,1),(3,2)
n \equiv 1 \pmod 3 || n \equiv 2 \pmod 3
n=3k+1 || n=3k+2
2,3,5,7 || 2,3,5
2,3,5,7 || 2,3,5,11
\{1,2,3\} || \{1,2,3,4\}
\pm 3 || 3
1 \pm 2i || 2 \pm i
3+4i || 3-4i
e^{i\pi/3} || \frac{\sqrt3}{2}+\frac{1}{2}i
\frac{\pi}{4}+k\pi || \frac{\pi}{4}+2k\pi
3:4:5 || 5:4:3
1:2 || 2:1
ABC || ACB
\triangle ABC || \triangle ABD
\angle ABC || \angle ABD
\overline{AB} || \overline{CD}
\vec{v} || \vec{w}
1000000 || 10^5
1.5\times 10^8 || 1.5 \times 10^9
1234_5 || 1234_6
0.\overline{12} || 0.12
4.5e33 || 4.5 \times 10^{32}
\frac{m v^2}{2} || m v^2
\sqrt{\frac{2 g h}{3}} || \sqrt{3gh/2}
\frac{G M}{r^2} || \frac{GM}{r}
e^{-t/\tau} || \exp(t/\tau)
v_0 \cos \theta || v_0\sin\theta
A e^{-kt} || e^{-Akt}
12 || \text{eleven}
seven || 8
70 || a+b+c=7
\frac{27}{128} || \frac{128}{27}
2^{13}\cdot 3^5 || 2^5 \cdot 3^{13}
2024^2-1 || 2023 \cdot 2024
\frac{2\sqrt{13}}{13} || \frac{\sqrt{13}}{2}
\sqrt{7+4\sqrt3} || 2-\sqrt3
\tan 15^\circ || 2+\sqrt3
\arctan \frac12 || \arctan 2
\frac{\pi}{6} || 60^\circ
x^2-4x+7 || (x+2)^2+3
\frac{1}{n(n+1)} || \frac{1}{n}+\frac{1}{n+1}
3^n-2^n || (3-2)^n
\frac{n^2(n+1)^2}{4} || \frac{n^2(n+1)}{4}
\binom{n}{3} || \binom{n}{2}
2^{k+1}-2 || 2^{k}-2
\lceil \frac{2n}{3}\rceil || \lfloor \frac{2n}{3} \rfloor
y=-\frac34x+5 || 4x+3y=20
\frac{x^2}{9}+\frac{y^2}{4}=1 || 9x^2+4y^2=36
x+2y-3z+4=0 || x+2y-3z-4=0
(-\infty,-2]\cup[2,\infty) || |x|>2
[3,7] || |t+5|\leq 2
0<a<\frac14 || 0\le a<\frac14
\text{July 4} || July 14
\text{Monday and Friday} || Monday
\text{B, D, E} || B, D, F
\text{Bill} || Bill, Carl
\text{red, blue, green} || \text{green}, \text{red}, \text{blue}
\text{Bill, Carl} || Carl, Bill
\text{Alice, Bob} || Bob, Alice
\text{scalene} || isosceles
(D) || (C) and (D)
\text{6:15 a.m.} || 6:15 PM
8\text{ a.m.} || 8 PM
\$2.50 || \$25.0
4 || fourteen
3,600 || 3.600
62.5\% || 62
5 \text{ kg} || 5 \text{ g}
f(n)=n+1 || f(n)=n-1
(1,2,3),(3,2,1) || (1,2,3),(2,3,1)
n=1,2,4 || n = 1, 2, 3
n \equiv 0,1 \pmod 4 || n\equiv 0,3 \pmod{4}
\text{all odd } n || \text{all even } n
\overline{PQ} || PR
XYZ || ZYX
2\hat{i}-3\hat{j} || 2\hat{i}+3\hat{j}
\vec{a}+2\vec{b} || 2\vec{a}+\vec{b}
\frac{e^{2x}}{2}+C || e^{2x}+C
\frac{k_BT}{m} || \frac{m}{k_B T}
6.02e23 || 6.02\times 10^{-23}
-0.5 || \frac12
RC\ln2 || \frac{R}{C}\ln 2
(2n)! || 2n!
n!^2 || (n^2)!
"""


def competition_answers() -> list[tuple[str, str, bool]]:
    """Yield (gold, answer, equal) for every line."""
    return [
        (*line.split(" || "), equal)
        for text, equal in ((EQUAL, True), (UNEQUAL, False))
        for line in text.strip().split("\n")
    ]
