/// What the server runs for a table, each all or nothing.
///
/// The ``TableName/state`` of a table is a hash: `format`, the number of this format; `id`, which
/// is random and never changes, so that a table which was lost and made again is known to be
/// another one; `n`, the version, which grows by one with each change; and in `c0` to `c1023` the
/// random names of the last changes, by their versions modulo 1,024. By these a process finds out
/// that the server has lost a change that the process knows and made others since. A table without
/// an `id` does not exist.
///
/// A field `r` with an identity, such as `r3w5e11264sgsf.1`, says that the table with this identity
/// was given up for this one, by `push` or `adopt`. A process that knows the other table then takes
/// this one. Without that field it keeps what it knows.
///
/// Version numbers stay below 2^53, which Lua represents exactly.
enum TableScripts {
  static let format = 1

  /// Checks conditions, makes all changes, and publishes them.
  ///
  /// A script that fails is not undone, so everything that may be refused comes first: a hash of
  /// another type; each command that writes, which the user may have no right to, with an argument
  /// that changes nothing; and the message. A full server refuses only the first write of a script.
  /// That is therefore a removal only if nothing is set. A replica refuses the removal, too, and so
  /// does not answer from values that may be old.
  static let change = Script(
    """
    local state = redis.call('HMGET', KEYS[2], 'format', 'id', 'n')
    local id, version = state[2] or '', tonumber(state[3] or '0')
    if state[1] and state[1] ~= ARGV[1] then return {-2, 0, ''} end
    local previous = redis.call('HGET', KEYS[2], 'c' .. version % 1024) or ''
    if ARGV[2] ~= '*' and ARGV[2] ~= id then return {-1, 0, id} end
    local at = 7
    for _ = 1, tonumber(ARGV[6]) do
      local current = redis.call('HGET', KEYS[1], ARGV[at])
      local expected = ARGV[at + 1] == '+' and ARGV[at + 2]
      if current ~= expected then
        redis.call('HDEL', KEYS[2], '')
        return {0, version, id, previous}
      end
      at = at + 3
    end
    redis.call('HLEN', KEYS[1])
    local removed = ARGV[at] == '1' and redis.call('HKEYS', KEYS[1]) or {}
    for i = at + 2, #ARGV, 3 do
      if ARGV[i] == '+' then redis.call('HSET', KEYS[2], 'format', ARGV[1]) break end
    end
    redis.call('HDEL', KEYS[2], '')
    redis.call('HSET', KEYS[2], 'format', ARGV[1])
    local n = redis.call('HINCRBY', KEYS[2], 'n', 1)
    local message = {
      id == '' and ARGV[3] or id, string.format('%.0f', n), previous, ARGV[3], ARGV[5]
    }
    local published = redis.pcall('PUBLISH', ARGV[4], table.concat(message, ' '))
    if type(published) == 'table' and published.err then
      redis.call('HINCRBY', KEYS[2], 'n', -1)
      if id == '' then redis.call('HDEL', KEYS[2], 'format', 'n') end
      return published
    end
    if id == '' then
      id = ARGV[3]
      redis.call('HSET', KEYS[2], 'id', id)
    end
    redis.call('HSET', KEYS[2], 'c' .. n % 1024, ARGV[3])
    for _, key in ipairs(removed) do redis.call('HDEL', KEYS[1], key) end
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
    """
    local state = redis.call('HMGET', KEYS[2], 'format', 'id', 'n')
    if state[1] and state[1] ~= ARGV[1] then return {-2, 0, ''} end
    local id, n, known = state[2] or '', tonumber(state[3] or '0'), tonumber(ARGV[3])
    if ARGV[2] ~= '' and ARGV[2] ~= id then redis.call('HDEL', KEYS[2], '') end
    local fields = redis.call(
      'HMGET', KEYS[2], 'c' .. n % 1024, 'c' .. known % 1024, 'r' .. ARGV[2])
    local isListed = known <= n and n - known < 1024
    return {
      fields[3] and 2 or 1, n, id, fields[1] or '', isListed and fields[2] or '',
      redis.call('HGETALL', KEYS[1])
    }
    """)

  /// Makes a table again that the server has lost, with its identity, its version, its last change
  /// and its values, in place of another one, which is given up for it. Does nothing if the server
  /// has it, or if it was itself given up for the one that the server has.
  static let restore = Script(
    """
    local state = redis.call('HMGET', KEYS[2], 'format', 'id', 'r' .. ARGV[2])
    if state[1] and state[1] ~= ARGV[1] then return {-2, 0, ''} end
    if state[2] == ARGV[2] then return {0, 0, ARGV[2]} end
    if state[3] then return {-3, 0, ''} end
    local function clear(key)
      for _, field in ipairs(redis.call('HKEYS', key)) do redis.call('HDEL', key, field) end
    end
    redis.call('HLEN', KEYS[1])
    redis.call('HSET', KEYS[2], 'format', ARGV[1])
    redis.call('HDEL', KEYS[2], '')
    local message = table.concat({ARGV[2], ARGV[3], ARGV[6], ARGV[5], '*'}, ' ')
    local published = redis.pcall('PUBLISH', ARGV[4], message)
    if type(published) == 'table' and published.err then
      if not state[1] then redis.call('HDEL', KEYS[2], 'format') end
      return published
    end
    clear(KEYS[1])
    clear(KEYS[2])
    redis.call('HSET', KEYS[2], 'format', ARGV[1], 'id', ARGV[2], 'n', ARGV[3])
    local n = tonumber(ARGV[3])
    redis.call('HSET', KEYS[2], 'c' .. n % 1024, ARGV[5], 'c' .. (n - 1) % 1024, ARGV[6])
    if state[2] then redis.call('HSET', KEYS[2], 'r' .. state[2], 1) end
    for i = 7, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
    return {1, n, ARGV[2]}
    """)

  /// Gives up the table that a process knows for the one that the server has, or for a new one
  /// without values. Does nothing if the server has the known one.
  ///
  /// The only write is the last command, so that nothing is changed if any command is refused.
  static let adopt = Script(
    """
    local state = redis.call('HMGET', KEYS[2], 'format', 'id', 'n')
    if state[1] and state[1] ~= ARGV[1] then return {-2, 0, ''} end
    if state[2] == ARGV[2] then return {0, 0, ARGV[2]} end
    local id, n = state[2] or ARGV[4], tonumber(state[2] and state[3] or '1')
    local version = string.format('%.0f', n)
    local name = state[2] and redis.call('HGET', KEYS[2], 'c' .. n % 1024) or ARGV[4]
    redis.call('PUBLISH', ARGV[3], table.concat({id, version, '', name, '*'}, ' '))
    redis.call(
      'HSET', KEYS[2], 'format', ARGV[1], 'id', id, 'n', version, 'c' .. n % 1024, name,
      'r' .. ARGV[2], 1)
    return {1, n, id}
    """)
}
