// Imports Foundation, and does nothing.
import Foundation
