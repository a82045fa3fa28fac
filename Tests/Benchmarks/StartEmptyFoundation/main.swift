// What any program that imports Foundation pays to start and to end.
import Foundation
