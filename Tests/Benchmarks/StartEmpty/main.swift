// What any program that imports Keepsake pays to start and to end.
import Keepsake
