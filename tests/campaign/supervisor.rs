//! Feeds consumers, kills them, and delivers again what they have not acknowledged.

use std::collections::{HashMap, VecDeque};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

const PROCESSES: usize = 3;
/// Messages that are under way to one process.
const UNDER_WAY: usize = 8;
/// A consumer that has acknowledged nothing by then is killed all the same.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone)]
pub(crate) struct Message {
    pub(crate) id: String,
    pub(crate) cents: u32,
}

/// What has happened so far.
#[derive(Default)]
pub(crate) struct Figures {
    pub(crate) messages: Vec<Message>,
    pub(crate) deliveries: usize,
    pub(crate) kills: usize,
    /// Deliveries that were not acknowledged when their process was killed.
    pub(crate) interrupted: usize,
    /// Deliveries whose handler has failed.
    pub(crate) refused: usize,
}

#[derive(Default)]
struct Stream {
    figures: Figures,
    /// To be delivered, again or for the first time.
    waiting: VecDeque<Message>,
    under_way: usize,
    kills_left: usize,
}

pub(crate) struct Supervisor {
    stream: Arc<Mutex<Stream>>,
    slots: Vec<JoinHandle<()>>,
}

impl Supervisor {
    pub(crate) fn start(url: &str, kills: usize) -> Self {
        let stream = Arc::new(Mutex::new(Stream { kills_left: kills, ..Stream::default() }));
        let slots = (0..PROCESSES).map(|_| {
            let (stream, url) = (Arc::clone(&stream), url.to_owned());
            std::thread::spawn(move || {
                while !lock(&stream).is_over() {
                    run_and_kill(&stream, &url);
                }
            })
        });
        Self { slots: slots.collect(), stream }
    }

    pub(crate) fn kills(&self) -> usize {
        lock(&self.stream).figures.kills
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.slots.iter().all(JoinHandle::is_finished)
    }

    pub(crate) fn end(self) -> Figures {
        for slot in self.slots {
            slot.join().expect("no panic");
        }
        std::mem::take(&mut lock(&self.stream).figures)
    }
}

fn lock(stream: &Mutex<Stream>) -> MutexGuard<'_, Stream> {
    stream.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stream {
    /// The next delivery. A new message comes one to three times, spread over the stream.
    fn next(&mut self) -> Option<Message> {
        if self.kills_left > 0 && self.waiting.len() < PROCESSES * UNDER_WAY {
            let message = Message { id: format!("m{}", self.figures.messages.len()), cents: fastrand::u32(1..10_000) };
            self.figures.messages.push(message.clone());
            for _ in 0..fastrand::usize(1..=3) {
                self.waiting.insert(fastrand::usize(0..=self.waiting.len()), message.clone());
            }
        }
        let next = self.waiting.pop_front()?;
        self.under_way += 1;
        self.figures.deliveries += 1;
        Some(next)
    }

    fn answered(&mut self, message: Message, acknowledged: bool) {
        self.under_way -= 1;
        self.figures.refused += usize::from(!acknowledged);
        // A broker may lose an acknowledgement too.
        if !acknowledged || (self.kills_left > 0 && fastrand::u8(0..10) == 0) {
            self.waiting.push_back(message);
        }
    }

    fn is_over(&self) -> bool {
        self.kills_left == 0 && self.waiting.is_empty() && self.under_way == 0
    }
}

/// One process, until it is killed, or has nothing left to do, or has ended by itself, since its server is down.
fn run_and_kill(stream: &Arc<Mutex<Stream>>, url: &str) {
    let mut process = Command::new(env!("CARGO_BIN_EXE_consumer"))
        .arg(url)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a consumer");
    let (acknowledged, first) = channel();
    let feeder = std::thread::spawn({
        let stream = Arc::clone(stream);
        let (input, output) = (process.stdin.take().expect("its input"), process.stdout.take().expect("its output"));
        move || feed(&stream, input, BufReader::new(output), &acknowledged)
    });
    let killed = wait_and_kill(stream, &mut process, &first);
    process.wait().expect("it is gone");
    let unanswered = feeder.join().expect("no panic");
    let mut stream = lock(stream);
    stream.figures.kills += usize::from(killed);
    stream.figures.interrupted += if killed { unanswered.len() } else { 0 };
    for message in unanswered {
        stream.under_way -= 1;
        stream.waiting.push_back(message);
    }
}

/// Kills the process a little after its first acknowledgement, if a kill is left.
fn wait_and_kill(stream: &Mutex<Stream>, process: &mut Child, first: &Receiver<()>) -> bool {
    if first.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Disconnected) {
        std::thread::sleep(Duration::from_millis(100));
        return false;
    }
    let left = {
        let mut stream = lock(stream);
        let left = stream.kills_left > 0;
        stream.kills_left = stream.kills_left.saturating_sub(1);
        left
    };
    if left {
        std::thread::sleep(Duration::from_micros(fastrand::u64(0..60_000)));
        process.kill().expect("killed");
    }
    left
}

/// Keeps a few messages under way and notes the answers, until the process ends; gives what it has not answered.
fn feed(
    stream: &Mutex<Stream>,
    mut input: ChildStdin,
    output: BufReader<std::process::ChildStdout>,
    acknowledged: &Sender<()>,
) -> Vec<Message> {
    // Several deliveries of one message may be under way to one process.
    let mut under_way: HashMap<String, Vec<Message>> = HashMap::new();
    let mut send = |under_way: &mut HashMap<String, Vec<Message>>| {
        if let Some(message) = lock(stream).next() {
            let line = format!("{} {}\n", message.id, message.cents);
            under_way.entry(message.id.clone()).or_default().push(message);
            // An error means that it was killed: then it answers no more.
            let _ = input.write_all(line.as_bytes());
        }
    };
    for _ in 0..UNDER_WAY {
        send(&mut under_way);
    }
    // With nothing under way no answer would ever come.
    let mut lines = output.lines();
    while !under_way.is_empty() {
        let Some(Ok(line)) = lines.next() else { break };
        // The last line may have been cut off by the kill.
        let Some((sign @ ("+" | "-"), id)) = line.split_at_checked(1) else { break };
        let Some(messages) = under_way.get_mut(id) else { break };
        let message = messages.pop().expect("one that is under way");
        if messages.is_empty() {
            under_way.remove(id);
        }
        lock(stream).answered(message, sign == "+");
        if sign == "+" {
            let _ = acknowledged.send(());
        } else {
            std::thread::sleep(Duration::from_millis(2));
        }
        send(&mut under_way);
    }
    under_way.into_values().flatten().collect()
}
