//! PostgreSQL's messages. A request ends with Query or Sync, each answered by one `ReadyForQuery`.
//! <https://www.postgresql.org/docs/current/protocol-message-formats.html>

use std::collections::HashMap;
use std::mem;

use super::message::{Piece, Request, cut_string, take, text};

/// The codes of first messages after which another first message follows: TLS and GSSAPI encryption.
const ENCRYPTION: [[u8; 4]; 2] = [80_877_103_u32.to_be_bytes(), 80_877_104_u32.to_be_bytes()];
const LENGTH: usize = 4;

#[derive(Debug, Default)]
pub(super) struct Messages {
    buffer: Vec<u8>,
    /// Past the first message, which has no type byte.
    started: bool,
    /// Prepared statements by name.
    statements: HashMap<Vec<u8>, String>,
    /// The messages of a request that has not ended yet.
    pending: Vec<u8>,
    /// What they ask for.
    actions: Vec<String>,
}

/// What a message is for.
enum Meaning {
    /// The request goes on.
    Part,
    /// The request ends here.
    Request(Request),
    /// To be forwarded; nothing that is counted.
    Other,
}

impl Messages {
    pub(super) fn sent(&mut self, bytes: &[u8]) -> Vec<Piece> {
        self.buffer.extend_from_slice(bytes);
        let mut pieces = Vec::new();
        while let Some((kind, message)) = self.next() {
            self.pending.extend_from_slice(&message);
            let body = &message[usize::from(kind.is_some()) + LENGTH..];
            let request = match self.read(kind, body) {
                Meaning::Part => continue,
                Meaning::Request(request) => Some(request),
                Meaning::Other => None,
            };
            pieces.push(Piece { bytes: mem::take(&mut self.pending), request });
        }
        pieces
    }

    /// The next whole message, with its type.
    fn next(&mut self) -> Option<(Option<u8>, Vec<u8>)> {
        let kind = if self.started { Some(*self.buffer.first()?) } else { None };
        let rest = &self.buffer[usize::from(self.started)..];
        let length = u32::from_be_bytes(*rest.first_chunk()?).try_into().unwrap_or(usize::MAX).max(LENGTH);
        let message = take(&mut self.buffer, usize::from(self.started) + length)?;
        if !self.started {
            self.started = !ENCRYPTION.iter().any(|code| message[LENGTH..].starts_with(code));
        }
        Some((kind, message))
    }

    fn read(&mut self, kind: Option<u8>, body: &[u8]) -> Meaning {
        match kind {
            Some(b'P') => {
                let (name, rest) = cut_string(body);
                let sql = text(cut_string(rest).0);
                self.actions.push(format!("prepare {sql}"));
                self.statements.insert(name.to_vec(), sql);
                Meaning::Part
            }
            Some(b'B') => {
                let (_portal, rest) = cut_string(body);
                let sql = self.statements.get(cut_string(rest).0).map_or("?", String::as_str);
                self.actions.push(format!("execute {sql}"));
                Meaning::Part
            }
            // Describe, Execute, Close: they say nothing new.
            Some(b'D' | b'E' | b'C') => Meaning::Part,
            Some(b'Q') => Meaning::Request(Request { text: text(cut_string(body).0), ping: false }),
            Some(b'S') => {
                let ping = self.pending.len() == 1 + LENGTH;
                let text = match mem::take(&mut self.actions) {
                    _ if ping => "ping".to_owned(),
                    actions if actions.is_empty() => "close".to_owned(),
                    actions => actions.join("; "),
                };
                Meaning::Request(Request { text, ping })
            }
            // Start-up, passwords, Flush, COPY's data, Terminate.
            _ => Meaning::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + LENGTH).expect("a short body");
        [&[kind][..], &length.to_be_bytes(), body].concat()
    }

    fn texts(pieces: Vec<Piece>) -> Vec<Option<String>> {
        pieces.into_iter().map(|piece| piece.request.map(|request| request.text)).collect()
    }

    #[test]
    fn requests_are_recognised_however_the_bytes_arrive() {
        let start = [&12_u32.to_be_bytes()[..], &[0, 3, 0, 0], &[0; 4]].concat();
        let query = message(b'Q', b"BEGIN\0");
        let prepare = [message(b'P', b"s1\0SELECT 1\0\0\0"), message(b'D', b"Ss1\0"), message(b'S', b"")].concat();
        let execute = [message(b'B', b"\0s1\0\0\0\0\0\0\0"), message(b'E', b"\0\0\0\0\0"), message(b'S', b"")].concat();
        let ping = message(b'S', b"");
        let all = [start, query, prepare, execute, ping].concat();
        let expected = ["BEGIN", "prepare SELECT 1", "execute SELECT 1", "ping"].map(|text| Some(text.to_owned()));
        for size in [1, 3, all.len()] {
            let mut messages = Messages::default();
            let pieces: Vec<_> = all.chunks(size).flat_map(|bytes| messages.sent(bytes)).collect();
            assert_eq!(pieces.iter().flat_map(|piece| piece.bytes.clone()).collect::<Vec<_>>(), all);
            assert_eq!(texts(pieces), [&[None], &expected[..]].concat());
        }
    }
}
