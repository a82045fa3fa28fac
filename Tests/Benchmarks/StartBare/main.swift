// What any program in Swift pays to start and to end: it imports nothing.
