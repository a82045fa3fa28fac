internal import KeepsakeLibc

/// The smallest number that a descriptor of the library may have: 0 to 2 are the standard streams.
let firstDescriptor: Int32 = 3

/// Makes a system call that returns a new descriptor.
///
/// If a program has closed a standard stream, the system gives its number to the next file that is
/// opened, and what the program prints would be written to that file. Such a descriptor is replaced
/// by one with another number.
///
/// - Parameter isNew: Whether the call created a file that no other process knows yet.
@inline(__always)
func openDescriptor(
  _ call: SystemCall, _ path: @autoclosure () -> String, isNew: Bool = false, _ body: () -> Int
) -> Result<Int, Errno> {
  let result = systemCall(call, path(), body)
  guard case .success(let number) = result, number < Int(firstDescriptor) else { return result }
  return replaceStandardStream(Int32(number), call, path(), isNew: isNew)
}

/// Duplicates a descriptor; returns -1 with `errno` if that fails.
func duplicateDescriptor(_ descriptor: Int32) -> Int {
  let copy = fcntl(descriptor, F_DUPFD_CLOEXEC, firstDescriptor)
  // The first number is beyond the limit on descriptors.
  if copy == -1, errno == EINVAL { errno = EMFILE }
  return Int(copy)
}

private func replaceStandardStream(
  _ descriptor: Int32, _ call: SystemCall, _ path: String, isNew: Bool
) -> Result<Int, Errno> {
  let result = systemCall(call, path) { duplicateDescriptor(descriptor) }
  close(descriptor)
  if isNew, case .success(let replacement) = result {
    // Another thread may have printed in the meantime.
    _ = ftruncate(Int32(replacement), 0)
    _ = lseek(Int32(replacement), 0, SEEK_SET)
  }
  return result
}
