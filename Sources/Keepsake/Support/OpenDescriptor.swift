internal import KeepsakeLibc

/// The smallest number that a descriptor of the library may have: 0 to 2 are the standard streams.
let firstDescriptor: Int32 = 3

/// Makes a system call that returns a new descriptor.
///
/// If a program has closed a standard stream, the system gives its number to the next file that is
/// opened, and what the program prints would be written to that file. Such a descriptor is replaced
/// by one with another number.
@inline(__always)
func openDescriptor(
  _ call: SystemCall, _ path: @autoclosure () -> String, _ body: () -> Int
) -> Result<Int, Errno> {
  let result = systemCall(call, path(), body)
  guard case .success(let number) = result, number < Int(firstDescriptor) else { return result }
  let copy = systemCall(call, path()) { duplicateDescriptor(Int32(number)) }
  close(Int32(number))
  return copy
}

/// Does the same with a call that creates a file.
///
/// What another thread prints may be on its way to the file even after its number was replaced. So
/// the file is removed, and another one is created while the number is in use.
///
/// - Parameter remove: Removes the file, which no other process knows yet.
@inline(__always)
func createDescriptor(
  _ call: SystemCall, _ path: @autoclosure () -> String, remove: () -> Void, _ body: () -> Int
) -> Result<Int, Errno> {
  var result = systemCall(call, path(), body)
  guard case .success(let number) = result, number < Int(firstDescriptor) else { return result }
  var standardStreams: [Int32] = []
  while case .success(let number) = result, number < Int(firstDescriptor) {
    standardStreams.append(Int32(number))
    remove()
    result = systemCall(call, path(), body)
  }
  for stream in standardStreams { close(stream) }
  return result
}

/// Duplicates a descriptor; returns -1 with `errno` if that fails.
func duplicateDescriptor(_ descriptor: Int32) -> Int {
  let copy = fcntl(descriptor, F_DUPFD_CLOEXEC, firstDescriptor)
  // The first number is beyond the limit on descriptors.
  if copy == -1, errno == EINVAL { errno = EMFILE }
  return Int(copy)
}
