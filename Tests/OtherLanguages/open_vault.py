#!/usr/bin/env python3
"""Opens a vault as VaultFormat.md describes it, and prints one JSON line per secret.

Needs only Python 3.9 and the openssl command line, whose AES of single blocks XAES-256-GCM is built on here.
The AES keys are arguments of openssl: who may list this machine's processes may see them.
"""
import argparse, base64, functools, hashlib, hmac, json, os, re, stat, subprocess, sys, unicodedata

PREFIX = b"Keepsake vault 1 "
# The kinds of a slot's secret that this program knows how to get.
KEY_FILE, PASSPHRASE, RECOVERY_CODE = 1, 2, 5
SECRETS = {KEY_FILE: b"key file", 3: b"credential", 4: b"closure", RECOVERY_CODE: b"recovery code"}
MASTER_KEY, PRESENCE_KEY, RECOVERY = 1, 2, 3  # purposes of a slot
KINDS, BOX = {0: "data", 1: "text", 2: "json", 3: "date", 4: "number"}, 255  # kinds of a padded value

def check(condition, message):
    if not condition:
        raise ValueError(message)

class Fields:
    def __init__(self, data, what):  # takes fields from the front of data, and never more than there are
        self.data, self.what, self.at = data, what, 0
    def bytes(self, count):
        check(count <= len(self.data) - self.at, f"{self.what} is too short")
        self.at += count
        return self.data[self.at - count:self.at]
    def integer(self, count, signed=False):
        return int.from_bytes(self.bytes(count), "little", signed=signed)
    def keys(self, count_length, id_length):
        keys = [(self.bytes(id_length), self.bytes(32)) for _ in range(self.integer(count_length))]
        check(len(dict(keys)) == len(keys), f"{self.what} has an id twice")
        return dict(keys)
    def start(self, magic, sixth):
        check(self.bytes(4) == magic, f"{self.what} does not start with {magic.decode()}")
        check(self.integer(1) == 1, f"{self.what} is of an unknown version")
        check(self.integer(1) == sixth, f"{self.what} is of an unknown suite")
    def sum(self):
        digest = hashlib.sha256(self.data[:self.at]).digest()
        check(digest == self.bytes(32), f"{self.what} is damaged: its SHA-256 differs")
        self.end()
    def end(self, zeros=0):
        check(self.data[self.at:] == bytes(zeros), f"{self.what} does not end where or as it should")

def read_file(path, private=False):
    with open(path, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as file:
        status = os.fstat(file.fileno())
        check(stat.S_ISREG(status.st_mode), f"{path} is no regular file")
        own = status.st_uid == os.geteuid() and not status.st_mode & 0o077
        folder, sticky = os.path.dirname(os.path.realpath(path)), 0
        while own:
            above = os.stat(folder)
            own = above.st_uid in (os.geteuid(), 0) and (not above.st_mode & 0o022 or above.st_mode & sticky)
            if folder == "/":
                break
            folder, sticky = os.path.dirname(folder), stat.S_ISVTX
        check(own or not private, f"{path} or its folder belongs to another user, or others may read or write it")
        return file.read()

def aes(key, blocks):
    """AES-256 of many blocks, each on its own."""
    done = subprocess.run(["openssl", "aes-256-ecb", "-nopad", "-K", key.hex()], input=blocks, capture_output=True)
    check(done.returncode == 0 and len(done.stdout) == len(blocks), f"openssl failed: {done.stderr.decode()}")
    return done.stdout

def xor(a, b):
    return (int.from_bytes(a, "big") ^ int.from_bytes(b, "big")).to_bytes(len(a), "big")

def times_x(number):
    return number >> 1 ^ (0xE1 << 120 if number & 1 else 0)  # in GHASH's field the highest bit stands for 1

REDUCED = [functools.reduce(lambda y, _: times_x(y), range(8), low) for low in range(256)]  # bytes times x^8

def ghash(h, data):
    table, power = [0] * 256, int.from_bytes(h, "big")  # the products of every byte and h
    for bit in 128, 64, 32, 16, 8, 4, 2, 1:
        table[bit], power = power, times_x(power)
    for byte in range(1, 256):
        table[byte] = table[byte & -byte] ^ table[byte & (byte - 1)]
    y = 0
    for at in range(0, len(data), 16):
        x, y = y ^ int.from_bytes(data[at:at + 16], "big"), 0
        for byte in x.to_bytes(16, "little"):
            y = y >> 8 ^ REDUCED[y & 255] ^ table[byte]
    return y.to_bytes(16, "big")

def gcm_open(key, nonce, ciphertext, tag, associated_data, what):
    """AES-256-GCM of NIST SP 800-38D, with a nonce of 12 bytes and a tag of 16."""
    counters = (nonce + number.to_bytes(4, "big") for number in range(1, -(-len(ciphertext) // 16) + 2))
    stream = aes(key, bytes(16) + b"".join(counters))
    data = b"".join(part + bytes(-len(part) % 16) for part in (associated_data, ciphertext))
    data += b"".join((8 * len(part)).to_bytes(8, "big") for part in (associated_data, ciphertext))
    expected = xor(ghash(stream[:16], data), stream[16:32])
    check(hmac.compare_digest(expected, tag), f"{what} is damaged, forged or not where it belongs: its tag differs")
    return xor(ciphertext, stream[32:32 + len(ciphertext)])

@functools.lru_cache(maxsize=None)
def k1(key):
    shifted = int.from_bytes(aes(key, bytes(16)), "big") << 1
    return (shifted ^ (1 << 128 | 0x87) if shifted >> 128 else shifted).to_bytes(16, "big")

def open_box(box, key, associated_data, what):
    check(len(box) >= 40, f"{what} is too short for a box")
    nonce, ciphertext, tag = box[:24], box[24:-16], box[-16:]
    kx = aes(key, xor(b"\0\1X\0" + nonce[:12], k1(key)) + xor(b"\0\2X\0" + nonce[:12], k1(key)))
    return gcm_open(kx, nonce[12:], ciphertext, tag, associated_data, what)

def hkdf(secret, salt, info, length):
    extracted = hmac.digest(salt, secret, "sha256")
    first = hmac.digest(extracted, info + b"\1", "sha256")
    return (first + hmac.digest(extracted, first + info + b"\2", "sha256"))[:length]

def key_file(path):
    fields = Fields(read_file(path, private=True), "the key file")
    fields.start(b"KVK1", 0)
    keys = fields.keys(2, 16)
    fields.sum()
    return keys

ALPHABET = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ"

def recovery_code(text):
    """The secret of a code as a user types it, or nothing if the text is not a code."""
    separators = ("Pd", "Zs", "Zl", "Zp", "Cf")
    code = "".join(letter for letter in text.decode() if unicodedata.category(letter) not in separators
                   and not letter.isspace() and letter not in "\u2043\u207b\u208b\u2212")
    code = code.upper().translate(str.maketrans("OIL", "011")).encode() if code.isascii() else b""
    if len(code) == 28 and all(letter in ALPHABET for letter in code):
        bits = int.from_bytes(hashlib.sha256(code[:26]).digest()[:2], "big") >> 6
        if code[26:] == bytes((ALPHABET[bits >> 5], ALPHABET[bits & 31])):
            return code

class Slot:
    def __init__(self, fields, purposes):
        start = fields.at
        self.kind, self.purpose, self.log_n, length = fields.bytes(4)
        self.locator, self.salt, self.before = fields.bytes(length), fields.bytes(32), fields.data[start:fields.at]
        self.commitment, self.box = fields.bytes(32), fields.bytes(72)
        check(self.kind in range(1, 6) and self.purpose in purposes,
              "a slot is of an unknown kind or purpose")
        check(self.kind != RECOVERY_CODE or self.purpose == RECOVERY,
              "a recovery code has another purpose")
        check(self.log_n in range(10, 21) if self.kind == PASSPHRASE else self.log_n == 0,
              "a slot's N is wrong")
    def wrapped_key(self, secret, vault_id):
        """The key that the slot wraps, or nothing if the secret is not the right one."""
        if self.kind == PASSPHRASE:
            d = hashlib.scrypt(secret, salt=self.salt, n=1 << self.log_n, r=8, p=1, maxmem=2 ** 31 - 1, dklen=64)
        else:
            d = hkdf(secret, self.salt, PREFIX + b"slot: " + SECRETS[self.kind], 64)
        associated_data = PREFIX + b"wrapped key" + vault_id + self.before
        return hmac.compare_digest(d[32:], self.commitment) and open_box(self.box, d[:32], associated_data, "a slot's box")

class Vault:
    def __init__(self, folder, keys, passphrase, presence_passphrase):
        self.folder = folder
        key_set_box, associated_data = self.header()
        master_key = self.unlock((MASTER_KEY, RECOVERY), keys, passphrase)
        key = hkdf(master_key, self.id, PREFIX + b"key set", 32)
        fields = Fields(open_box(key_set_box, key, associated_data, "the key set"), "the key set")
        count = fields.integer(4)
        check(count > 0, "the key set has no key for names")
        self.name_keys = [fields.bytes(32) for _ in range(count)]  # the newest first
        primary, self.entry_keys = fields.bytes(4), fields.keys(4, 4)
        self.slots += [Slot(fields, (PRESENCE_KEY,)) for _ in range(fields.integer(2))]
        fields.end()
        self.presence_key = presence_passphrase is not None and self.unlock(
            (PRESENCE_KEY,), {}, presence_passphrase)
        check(primary in self.entry_keys, "the key set lacks the primary entry key")
    def header(self):
        fields = Fields(read_file(os.path.join(self.folder, "vault.hdr")), "the header")
        fields.start(b"KVH1", 1)
        count, self.id = fields.integer(2), fields.bytes(16)
        self.slots = [Slot(fields, (MASTER_KEY, RECOVERY)) for _ in range(count)]
        associated_data = fields.data[:fields.at] + bytes(4)  # a directory's context is empty
        key_set_box = fields.bytes(fields.integer(4))
        fields.sum()
        return key_set_box, associated_data
    def unlock(self, purposes, keys, passphrase):
        if passphrase is not None:
            passphrase = unicodedata.normalize("NFC", passphrase.decode()).encode()
        code = passphrase and recovery_code(passphrase)
        for slot in self.slots:
            secrets = {
                KEY_FILE: keys.get(slot.locator), PASSPHRASE: passphrase, RECOVERY_CODE: code}
            secret = secrets.get(slot.kind)
            if slot.purpose not in purposes or secret is None:
                continue
            if key := slot.wrapped_key(secret, self.id):
                return key
        name = "master" if MASTER_KEY in purposes else "presence"
        raise ValueError(f"what was given opens no slot of the {name} key")
    def name_key(self, folder, file, service, key):
        """The number of the key that both names come from."""
        def name(names_key, message):
            return hmac.digest(names_key, message, "sha256")[:16].hex()
        for number, names_key in enumerate(self.name_keys):
            if name(names_key, message(b"S", service)) == folder and name(names_key, message(b"K", service, key)) == file:
                return number
        raise ValueError(f"{folder}/{file}: the names of folder and file are not those of its service and key")
    def secrets(self):
        """All secrets. One that is there twice, while it is moved, counts under the newest name."""
        found = {}
        for folder in self.names():
            for file in self.names(folder):
                number, secret = self.secret(folder, file)
                place = secret["service"], secret["key"]
                if place not in found or number < found[place][0]:
                    found[place] = number, secret
        return [found[place][1] for place in sorted(found)]
    def names(self, *folder):
        for name in os.listdir(os.path.join(self.folder, *folder)):
            if not (name.startswith(".") and name.endswith(".tmp") or not folder and name in ("vault.hdr", ".lock")):
                check(re.fullmatch("[0-9a-f]{32}", name), f"{os.path.join(*folder, name)} does not belong into a vault")
                yield name
    def secret(self, folder, file):
        what = f"{folder}/{file}"
        fields = Fields(read_file(os.path.join(self.folder, folder, file)), what)
        fields.start(b"KVE1", 1)
        flags, entry_key = fields.integer(2), self.entry_keys.get(fields.bytes(4))
        check(flags in (0, 1) and entry_key, f"{what} has an unknown flag or is under an unknown entry key")
        lengths = fields.integer(4), fields.integer(8)
        h = fields.data[:24] + self.id + folder.encode() + file.encode()
        names_box, value_box = map(fields.bytes, lengths)
        fields.end()
        names = Fields(open_box(names_box, entry_key, h + b"\0", f"{what}, names,"), f"{what}, names,")
        created, modified = names.integer(8, signed=True), names.integer(8, signed=True)
        service, key = names.bytes(names.integer(4)), names.bytes(names.integer(4))
        number = self.name_key(folder, file, service, key)
        kind, value = padded_value(open_box(value_box, entry_key, h + b"\1" + names_box, f"{what}, value,"), what)
        check((kind == BOX) == (flags == 1), f"{what}: flags and value differ about presence")
        if kind == BOX and self.presence_key:
            associated_data = self.id + message(b"K", service, key) + b"\2"
            kind, value = padded_value(open_box(value, self.presence_key, associated_data, f"{what}, inner value,"), what)
            check(kind != BOX, f"{what}: a box in a box")
        return number, {"service": service.decode(), "key": key.decode(), "created": created, "modified": modified,
                        "presence": flags == 1, "kind": KINDS.get(kind),
                        "value": None if kind == BOX else base64.b64encode(value).decode()}

def message(letter, *texts):
    return letter + b"".join(len(text).to_bytes(4, "little") + text for text in texts)

def padded_value(plaintext, what):
    fields = Fields(plaintext, f"{what}, padded value,")
    kind, zero = fields.integer(1), fields.integer(7)
    check((kind in KINDS or kind == BOX) and zero == 0, f"{what}: the padded value's first 8 bytes are unknown")
    value = fields.bytes(fields.integer(8))
    fields.end(zeros=len(plaintext) - fields.at)
    if kind in (1, 2, 3, 4):
        text = value.decode()
        parsed = kind == 1 or json.loads(text, parse_int=float, parse_constant=int)  # int refuses NaN and Infinity
        check(kind < 3 or isinstance(parsed, float if kind == 3 else str), f"{what}: the value is not of its kind")
    return kind, value

def main():
    parser = argparse.ArgumentParser(description="Prints the secrets of a vault.")
    parser.error = lambda message: sys.exit(f"open_vault.py: {message}")
    parser.add_argument("vault")
    either = parser.add_mutually_exclusive_group(required=True)
    either.add_argument("--key-file")
    either.add_argument("--passphrase-stdin", action="store_true", help="less one newline at its end")
    parser.add_argument("--presence-passphrase", type=os.fsencode)
    given = parser.parse_args()
    try:
        passphrase = sys.stdin.buffer.read().removesuffix(b"\n") if given.passphrase_stdin else None
        keys = key_file(given.key_file) if given.key_file else {}
        vault = Vault(given.vault, keys, passphrase, given.presence_passphrase)
        for secret in vault.secrets():
            print(json.dumps(secret))
    except (OSError, ValueError, RecursionError) as error:
        parser.error(str(error))

if __name__ == "__main__":
    main()
