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
