/// The scripts that the server runs for a cache.
///
/// The state of a cache is one string: eight random bytes, which name its generation, and the
/// number of the last change in 16 digits. Both are lost together. Each change takes the next
/// number; removing all values begins a new generation. A state that is missing is replaced by the
/// client's: a random generation, and the time in microseconds as the number, so that numbers go on
/// upwards.
///
/// A value begins with the generation and the number of the change that stored it. The server
/// deletes values of earlier generations when their time is over. Leases and productions have the
/// generation, too, so that they end then.
///
/// The server does not undo a script that fails. Therefore a script writes the number of its change
/// first: if that write is refused, no value has changed and no message was published. It publishes
/// the message next: if the user may not publish, no value has changed either. A full server
/// refuses only the writes before the first removal of a script.
enum CacheScripts {
  /// Key 1 is the state, value 1 a new one.
  private static let state = """
    local state = redis.call('GET', KEYS[1])
    local isNew = not state or #state ~= 24 or not tonumber(string.sub(state, 9))
    if isNew then state = ARGV[1] end
    local generation, number = string.sub(state, 1, 8), tonumber(string.sub(state, 9))
    local function digits() return string.format('%016.0f', number) end
    local function publish(type, suffix)
      redis.call('PUBLISH', ARGV[2], type .. digits() .. suffix)
    end
    local function takeNumber()
      number = number + 1
      local taken = redis.pcall('SET', KEYS[1], generation .. digits())
      local isFull = taken.err and string.find(' ' .. taken.err, '[ -]OOM ')
      return taken, taken.err and not isFull
    end

    """

  /// Keys: the state, the entry, the lease, the production. Values: a new state, the channel, the
  /// rest of the message, the production that is required or nothing. To store a value: the bytes,
  /// their lifetime in milliseconds. Without them, the value is removed.
  ///
  /// A value that is refused has changed the key, too: the old one is removed.
  static let change = Script(
    state + """
      if ARGV[4] ~= '' and redis.call('GET', KEYS[4]) ~= generation .. ARGV[4] then return 0 end
      local stored, isRefused = takeNumber()
      if isRefused then return stored end
      publish(ARGV[5] and 's' or 'r', ARGV[3])
      if ARGV[5] and not stored.err then
        stored = redis.pcall('SET', KEYS[2], generation .. digits() .. ARGV[5], 'PX', ARGV[6])
      end
      redis.call('DEL', KEYS[3], KEYS[4])
      if ARGV[5] and not stored.err then return number end
      redis.call('DEL', KEYS[2])
      redis.call('SET', KEYS[1], generation .. digits())
      return ARGV[5] and {number, stored.err} or number
      """)

  /// Key: the state. Values: a new state, the channel.
  static let removeAll = Script(
    state + """
      local taken, isRefused = takeNumber()
      if isRefused then return taken end
      publish('a', '')
      redis.call('DEL', KEYS[1])
      redis.call('SET', KEYS[1], string.sub(ARGV[1], 1, 8) .. digits())
      return number
      """)

  /// Keys: the state, the entry. Values: the name of the version in eight bytes, the lifetime in
  /// milliseconds.
  ///
  /// The name follows eight bytes of the entry's header.
  static let touch = Script(
    """
    local state, head = redis.call('GET', KEYS[1]), redis.call('GETRANGE', KEYS[2], 0, 39)
    if not state or #state ~= 24 or string.sub(head, 1, 8) ~= string.sub(state, 1, 8)
      or string.sub(head, 33, 40) ~= ARGV[1] then
      return 0
    end
    return redis.call('PEXPIRE', KEYS[2], ARGV[2])
    """)

  /// Keys: the state, the entry, the lease, the production. Values: a new state, the token, the
  /// time in milliseconds for which it is valid, the number of bytes of the entry to return, the
  /// production if there is none, the time in milliseconds for which it is valid.
  static let takeLease = Script(
    state + """
      local lease, rest = redis.call('GET', KEYS[3]), redis.call('PTTL', KEYS[3])
      if lease and string.sub(lease, 1, 8) == generation and rest > 0 then return {0, rest} end
      local production = redis.call('GET', KEYS[4])
      local head = redis.pcall('GETRANGE', KEYS[2], 0, tonumber(ARGV[4]) + 23)
      if type(head) ~= 'string' then head = '' end
      redis.call('DEL', KEYS[3])
      if isNew then redis.call('SET', KEYS[1], state) end
      redis.call('SET', KEYS[3], generation .. ARGV[2], 'PX', ARGV[3])
      if production and string.sub(production, 1, 8) == generation then
        production = string.sub(production, 9)
      else
        production = ARGV[5]
      end
      redis.call('SET', KEYS[4], generation .. production, 'PX', ARGV[6])
      if string.sub(head, 1, 8) == generation then
        return {1, production, redis.call('PTTL', KEYS[2]), head}
      end
      return {1, production}
      """)

  /// Key: the lease. Values: the token, the channel, the message.
  static let release = Script(
    """
    local lease = redis.call('GET', KEYS[1])
    if not lease or string.sub(lease, 9) ~= ARGV[1] then return 0 end
    redis.call('PUBLISH', ARGV[2], ARGV[3])
    redis.call('DEL', KEYS[1])
    return 1
    """)
}
