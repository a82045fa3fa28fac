import Keepsake
print(Defaults.int("x"))
