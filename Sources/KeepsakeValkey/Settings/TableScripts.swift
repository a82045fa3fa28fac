/// What the server runs for a table, each all or nothing.
///
/// The ``TableName/state`` of a table is a hash: `format`, the number of this format; `id`, which
/// is random and never changes, so that a table which was lost and made again is known to be
/// another one; `n`, the version, which grows by one with each change; and in `c0` to `c1023` the
/// random names of the last changes, by their versions modulo 1,024. By these a process finds out
/// that the server has lost a change that the process knows and made others since.
///
/// The ``TableName/values`` are a hash, too. Its field ``marker`` has the `id` of the table. A
/// server may lose one of the two hashes alone, for example by eviction. So a table exists only if
/// both have the same `id`. A table that does not exist is begun again, without what is left of it.
///
/// A field `r` with an identity, such as `r3w5e11264sgsf.1`, says that the table with this identity
/// was given up for this one, by `push` or `adopt`. A process that knows the other table then takes
/// this one. Without that field it keeps what it knows.
///
/// Version numbers stay below 2^53, which Lua represents exactly.
///
/// A script that fails is not undone, so everything that may be refused comes first: a hash of
/// another type; each command that writes, which the user may have no right to, with an argument
/// that changes nothing; and the message. A full server refuses only the first write of a script.
enum TableScripts {
  static let format = 1

  /// The field of the values that has the `id`. No key is the same, because keys are UTF-8.
  static let marker: [UInt8] = [0xFF]

  /// Sets `id` to the identity of the table, or to false if it does not exist.
  private static let table = """
    local state = redis.call('HMGET', KEYS[2], 'format', 'id', 'n')
    if state[1] and state[1] ~= ARGV[1] then return {-2, 0, ''} end
    local id = redis.call('HGET', KEYS[1], '\\255')
    if id ~= state[2] then id = false end

    """

  /// What a script needs that may begin a table: `fields` before anything is written, `publish` to
  /// send the message, and `begin` after that.
  private static let beginning =
    table + """
      local function fields()
        return {redis.call('HKEYS', KEYS[1]), redis.call('HKEYS', KEYS[2])}
      end
      local function publish(channel, message)
        local published = redis.pcall('PUBLISH', channel, table.concat(message, ' '))
        if type(published) ~= 'table' or not published.err then return end
        if not state[1] then redis.call('HDEL', KEYS[2], 'format') end
        return published
      end
      local function begin(new, remains)
        for i, names in ipairs(remains) do
          for _, name in ipairs(names) do redis.call('HDEL', KEYS[i], name) end
        end
        redis.call('HSET', KEYS[2], 'format', ARGV[1], 'id', new)
        redis.call('HSET', KEYS[1], '\\255', new)
      end

      """

  /// Checks conditions, makes all changes, and publishes them.
  ///
  /// The first write is a removal only if nothing is set, because a full server does not refuse it.
  /// A replica refuses the removal, too, and so does not answer from values that may be old.
  static let change = Script(
    beginning + """
      if ARGV[2] ~= '*' and ARGV[2] ~= id then return {-1, 0, id or ''} end
      local version = tonumber(id and state[3] or '0')
      local previous = id and redis.call('HGET', KEYS[2], 'c' .. version % 1024) or ''
      local at = 7
      for _ = 1, tonumber(ARGV[6]) do
        local current = id and redis.call('HGET', KEYS[1], ARGV[at])
        local expected = ARGV[at + 1] == '+' and ARGV[at + 2]
        if current ~= expected then
          redis.call('HDEL', KEYS[2], '')
          return {0, version, id or '', previous}
        end
        at = at + 3
      end
      local remains = not id and fields()
      local removed = id and ARGV[at] == '1' and redis.call('HKEYS', KEYS[1]) or {}
      for i = at + 2, #ARGV, 3 do
        if ARGV[i] == '+' then redis.call('HSET', KEYS[2], 'format', ARGV[1]) break end
      end
      redis.call('HDEL', KEYS[2], '')
      redis.call('HSET', KEYS[2], 'format', ARGV[1])
      local n = id and redis.call('HINCRBY', KEYS[2], 'n', 1) or 1
      local message = {id or ARGV[3], string.format('%.0f', n), previous, ARGV[3], ARGV[5]}
      local refused = publish(ARGV[4], message)
      if refused then
        if id then redis.call('HINCRBY', KEYS[2], 'n', -1) end
        return refused
      end
      if not id then
        id = ARGV[3]
        begin(id, remains)
        redis.call('HSET', KEYS[2], 'n', n)
      end
      redis.call('HSET', KEYS[2], 'c' .. n % 1024, ARGV[3])
      for _, key in ipairs(removed) do
        if key ~= '\\255' then redis.call('HDEL', KEYS[1], key) end
      end
      for i = at + 1, #ARGV, 3 do
        if ARGV[i + 1] == '+' then
          redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 2])
        else
          redis.call('HDEL', KEYS[1], ARGV[i])
        end
      end
      return {1, n, id, previous}
      """)

  /// All values of one moment, with the version, and the names of the change that made it and of
  /// one that the process knows.
  ///
  /// If the process knows another table, the removal keeps a replica that has not caught up from
  /// answering. The result is 2 and not 1 if that other table was given up for this one.
  static let snapshot = Script(
    isRead: true,
    table + """
      if ARGV[2] ~= '' and ARGV[2] ~= id then redis.call('HDEL', KEYS[2], '') end
      if not id then return {1, 0, '', '', '', {}} end
      local n, known = tonumber(state[3] or '0'), tonumber(ARGV[3])
      local fields = redis.call(
        'HMGET', KEYS[2], 'c' .. n % 1024, 'c' .. known % 1024, 'r' .. ARGV[2])
      local isListed = known <= n and n - known < 1024
      return {
        fields[3] and 2 or 1, n, id, fields[1] or '', isListed and fields[2] or '',
        redis.call('HGETALL', KEYS[1])
      }
      """)

  /// Makes a table again that the server has lost, with its identity, its version, its last change
  /// and its values, instead of another one, which is given up for it. Does nothing if the server
  /// has it, or if it was itself given up for the one that the server has.
  static let restore = Script(
    beginning + """
      if id == ARGV[2] then return {0, 0, id} end
      if id and redis.call('HGET', KEYS[2], 'r' .. ARGV[2]) then return {-3, 0, ''} end
      local remains = fields()
      redis.call('HSET', KEYS[2], 'format', ARGV[1])
      redis.call('HDEL', KEYS[2], '')
      local refused = publish(ARGV[4], {ARGV[2], ARGV[3], ARGV[6], ARGV[5], '*'})
      if refused then return refused end
      begin(ARGV[2], remains)
      local n = tonumber(ARGV[3])
      redis.call(
        'HSET', KEYS[2], 'n', ARGV[3], 'c' .. n % 1024, ARGV[5], 'c' .. (n - 1) % 1024, ARGV[6])
      if id then redis.call('HSET', KEYS[2], 'r' .. id, 1) end
      for i = 7, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
      return {1, n, ARGV[2]}
      """)

  /// Gives up the table that a process knows for the one that the server has, or for a new one
  /// without values. Does nothing if the server has the known one.
  ///
  /// If the server has a table, the only write is the last command, so that nothing is changed if
  /// any command is refused.
  static let adopt = Script(
    beginning + """
      if id == ARGV[2] then return {0, 0, id} end
      local n = tonumber(id and state[3] or '1')
      local version = string.format('%.0f', n)
      local name = id and redis.call('HGET', KEYS[2], 'c' .. n % 1024) or ARGV[4]
      local remains = not id and fields()
      if not id then
        redis.call('HSET', KEYS[2], 'format', ARGV[1])
        redis.call('HDEL', KEYS[2], '')
      end
      local refused = publish(ARGV[3], {id or ARGV[4], version, '', name, '*'})
      if refused then return refused end
      if not id then
        id = ARGV[4]
        begin(id, remains)
      end
      redis.call(
        'HSET', KEYS[2], 'n', version, 'c' .. n % 1024, name, 'r' .. ARGV[2], 1)
      return {1, n, id}
      """)
}
