extension Defaults {
  /// Names a group of settings that are kept apart from all others: one file each.
  ///
  /// See ``StoragePlace``.
  public typealias Suite = StoragePlace<Defaults>
}
