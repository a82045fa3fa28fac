// Imports Keepsake, and does nothing.
import Keepsake
