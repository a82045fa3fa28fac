@testable import Keepsake

/// The library's system calls during `body`, in order.
func systemCalls(of body: () throws -> Void) rethrows -> [SystemCall] {
  let calls = Locked<[SystemCall]>([])
  let plan = FaultPlan(decide: { event in
    calls.withLock { $0.append(event.call) }
    return .proceed
  })
  try FaultPlan.$current.withValue(plan, operation: body)
  return calls.withLock { $0 }
}

/// How many bytes each of the library's reads returned during `body`.
func readSizes(of body: () throws -> Void) rethrows -> [Int] {
  let sizes = Locked<[Int]>([])
  let plan = FaultPlan(
    decide: { _ in .proceed },
    observe: { event, result in
      guard event.call == .read, case .success(let size) = result else { return }
      sizes.withLock { $0.append(size) }
    })
  try FaultPlan.$current.withValue(plan, operation: body)
  return sizes.withLock { $0 }
}
