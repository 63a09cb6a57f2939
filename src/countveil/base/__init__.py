"""THE GROUND FLOOR: exact numbers, random bits, files that survive a crash, histograms."""
