"""Command line of the reports: python -m d3s.report RUN [RUN ...]"""

from d3s.report.report import main

main()
