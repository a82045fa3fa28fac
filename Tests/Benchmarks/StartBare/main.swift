// Imports nothing: the minimal cost of starting and ending a program.
