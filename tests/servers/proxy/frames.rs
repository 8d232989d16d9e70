//! The messages of which both protocols consist: how long each is stands at its beginning.

use super::message::take;

/// One direction of a connection, cut into messages.
#[derive(Debug)]
pub(super) struct Frames {
    is_postgres: bool,
    buffer: Vec<u8>,
}

impl Frames {
    pub(super) const fn new(is_postgres: bool) -> Self {
        Self { is_postgres, buffer: Vec::new() }
    }

    /// Takes what has arrived and gives the messages that it completes.
    pub(super) fn arrived(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.buffer.extend_from_slice(bytes);
        let Self { is_postgres, buffer } = self;
        let next = || {
            let length = length(*is_postgres, buffer)?;
            take(buffer, length)
        };
        std::iter::from_fn(next).collect()
    }
}

/// The messages in a piece that holds whole ones. A first message, which has another form, is one.
pub(super) fn split(is_postgres: bool, mut piece: &[u8]) -> Vec<&[u8]> {
    let mut messages = Vec::new();
    while !piece.is_empty() {
        let length = length(is_postgres, piece).filter(|length| *length <= piece.len()).unwrap_or(piece.len());
        let (message, rest) = piece.split_at(length);
        messages.push(message);
        piece = rest;
    }
    messages
}

fn length(is_postgres: bool, bytes: &[u8]) -> Option<usize> {
    if is_postgres {
        let length = u32::from_be_bytes(*bytes.get(1..)?.first_chunk()?);
        Some(1 + usize::try_from(length).unwrap_or(usize::MAX - 1).max(4))
    } else {
        let &[a, b, c, _] = bytes.first_chunk()?;
        Some(4 + (usize::from(a) | usize::from(b) << 8 | usize::from(c) << 16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_however_the_bytes_arrive() {
        for (is_postgres, messages) in
            [(true, [&b"Z\0\0\0\x05I"[..], b"1\0\0\0\x04"]), (false, [&b"\x02\0\0\x01ab"[..], b"\0\0\0\x02"])]
        {
            let all = messages.concat();
            assert_eq!(split(is_postgres, &all), messages);
            for size in [1, 3, all.len()] {
                let mut frames = Frames::new(is_postgres);
                let found: Vec<_> = all.chunks(size).flat_map(|bytes| frames.arrived(bytes)).collect();
                assert_eq!(found, messages);
            }
        }
    }
}
