//! As much of the Language Server Protocol as one completion needs.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// A server, and the conversation with it.
pub(crate) struct Client {
    server: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    settings: Value,
    requests: u64,
}

impl Client {
    /// Starts a server on a folder.
    pub(crate) fn start(program: &OsStr, folder: &str, settings: &Value) -> Self {
        let mut server = Command::new(program)
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server starts");
        let (input, output) = (server.stdin.take().expect("piped"), server.stdout.take().expect("piped"));
        let mut client =
            Self { server, input, output: BufReader::new(output), settings: settings.clone(), requests: 0 };
        client.request(
            "initialize",
            &json!({
                "processId": std::process::id(),
                "rootUri": format!("file://{folder}"),
                "capabilities": { "workspace": { "configuration": true } },
                "initializationOptions": settings,
            }),
        );
        client.send(&json!({ "method": "initialized", "params": {} }));
        client
    }

    /// Opens a file with a text that need not be on disk.
    pub(crate) fn open(&mut self, file: &str, text: &str) {
        let document = json!({ "uri": file, "languageId": "rust", "version": 1, "text": text });
        self.send(&json!({ "method": "textDocument/didOpen", "params": { "textDocument": document } }));
    }

    /// What is offered at a position; nothing while the server is not ready.
    pub(crate) fn complete(&mut self, file: &str, line: usize, character: usize) -> Vec<String> {
        let position = json!({ "line": line, "character": character });
        let answer =
            self.request("textDocument/completion", &json!({ "textDocument": { "uri": file }, "position": position }));
        let items = answer.get("items").unwrap_or(&answer).as_array().cloned().unwrap_or_default();
        items.iter().filter_map(|item| item["label"].as_str()).map(ToOwned::to_owned).collect()
    }

    /// What the attribute at a position becomes.
    pub(crate) fn expand(&mut self, file: &str, line: usize, character: usize) -> String {
        let position = json!({ "line": line, "character": character });
        let answer = self
            .request("rust-analyzer/expandMacro", &json!({ "textDocument": { "uri": file }, "position": position }));
        answer["expansion"].as_str().unwrap_or_default().to_owned()
    }

    fn request(&mut self, method: &str, params: &Value) -> Value {
        self.requests += 1;
        let id = self.requests;
        self.send(&json!({ "id": id, "method": method, "params": params }));
        loop {
            let message = self.receive();
            match (message.get("method"), message.get("id")) {
                (None, Some(answered)) if *answered == id => return message["result"].clone(),
                // The server asks, too.
                (Some(asked), Some(question)) => {
                    let items = message["params"]["items"].as_array().map_or(0, Vec::len);
                    let settings = vec![self.settings.clone(); items];
                    let result = if asked == "workspace/configuration" { json!(settings) } else { Value::Null };
                    self.send(&json!({ "id": question, "result": result }));
                }
                _ => {}
            }
        }
    }

    fn send(&mut self, message: &Value) {
        let mut message = message.clone();
        message["jsonrpc"] = json!("2.0");
        let text = message.to_string();
        write!(self.input, "Content-Length: {}\r\n\r\n{text}", text.len()).expect("the server listens");
        self.input.flush().expect("the server listens");
    }

    fn receive(&mut self) -> Value {
        let mut length = 0;
        loop {
            let mut header = String::new();
            assert!(self.output.read_line(&mut header).expect("the server speaks") > 0, "the server has ended");
            match header.trim().split_once(": ") {
                Some(("Content-Length", value)) => length = value.parse().expect("a length"),
                Some(_) => {}
                None => break,
            }
        }
        let mut text = vec![0; length];
        self.output.read_exact(&mut text).expect("the server speaks");
        serde_json::from_slice(&text).expect("JSON")
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
