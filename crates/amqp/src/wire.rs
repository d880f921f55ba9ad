//! The data types of the protocol, as far as a publisher needs them.

/// Why bytes are no AMQP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// A frame has no known type, or does not end where its length says.
    Frame,
    /// A method or the properties of a message end too early.
    Cut,
    /// The frames of a message that is returned do not follow each other, or do not have its size.
    Order,
    /// The server has answered with the version of the protocol that it speaks.
    OtherVersion,
    /// The frame is larger than any that a server may send.
    TooLarge,
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Malformed::Frame => "the server sent what is no frame of AMQP",
            Malformed::Cut => "the server sent a frame that ends too early",
            Malformed::Order => "the server sent the frames of a message out of order",
            Malformed::OtherVersion => "the server does not speak AMQP 0-9-1",
            Malformed::TooLarge => "the server sent a frame that is too large",
        })
    }
}

impl std::error::Error for Malformed {}

/// Reads values from the front of the bytes.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (array, rest) = self.0.split_first_chunk::<N>().ok_or(Malformed::Cut)?;
        self.0 = rest;
        Ok(*array)
    }

    pub fn bytes(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Malformed::Cut)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_be_bytes)
    }

    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    /// A string of at most 255 bytes. RabbitMQ cuts a long text inside a character.
    pub fn short(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.u8()?;
        self.bytes(length.into())
    }

    /// The bytes of a string, or those of a table, behind their length.
    pub fn long(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.u32()?;
        self.bytes(length as usize)
    }
}

/// Finds a string in the bytes of a table. Returns none if the name is missing, or if its value is no
/// string.
pub fn find_string<'a>(table: &'a [u8], wanted: &str) -> Option<&'a [u8]> {
    let mut rest = Reader(table);
    while !rest.0.is_empty() {
        let name = rest.short().ok()?;
        let kind = rest.u8().ok()?;
        let fixed = match kind {
            b'S' | b'x' | b'F' | b'A' => {
                let value = rest.long().ok()?;
                if name == wanted.as_bytes() {
                    return (kind == b'S').then_some(value);
                }
                continue;
            }
            b'V' => 0,
            b't' | b'b' | b'B' => 1,
            b's' | b'u' | b'U' => 2,
            b'I' | b'i' | b'f' => 4,
            b'D' => 5,
            b'l' | b'L' | b'd' | b'T' => 8,
            _ => return find_entry(rest.0, wanted),
        };
        rest.bytes(fixed).ok()?;
        if name == wanted.as_bytes() {
            return None;
        }
    }
    None
}

/// Finds a string by the bytes of its entry: the length of a value before it is not known.
fn find_entry<'a>(bytes: &'a [u8], wanted: &str) -> Option<&'a [u8]> {
    let mut entry = Vec::new();
    put_short(&mut entry, wanted.as_bytes());
    entry.push(b'S');
    let at = bytes.windows(entry.len()).position(|window| window == entry)?;
    Reader(&bytes[at + entry.len()..]).long().ok()
}

/// Appends a string, of which at most 255 bytes are sent.
pub fn put_short(out: &mut Vec<u8>, text: &[u8]) {
    let length = u8::try_from(text.len()).unwrap_or(u8::MAX);
    out.push(length);
    out.extend_from_slice(&text[..length.into()]);
}

pub fn put_numbers<const N: usize>(out: &mut Vec<u8>, numbers: [u16; N]) {
    numbers.iter().for_each(|number| out.extend_from_slice(&number.to_be_bytes()));
}

/// Appends what `fill` appends, behind its length.
pub fn put_length(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    fill(out);
    let length = u32::try_from(out.len() - at - 4).unwrap_or(u32::MAX);
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

/// Appends an entry of a table whose value is a string.
pub fn put_string(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    put_short(out, name);
    out.push(b'S');
    put_length(out, |out| out.extend_from_slice(value));
}
