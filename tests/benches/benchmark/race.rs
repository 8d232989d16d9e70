//! Ways measured against each other, interleaved: what disturbs the machine disturbs them alike.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::ways::{Way, Ways};

const MOST_DUPLICATES: usize = 2_000;

/// How long, and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    /// How long each way has in a round.
    pub(crate) turn: Duration,
}

/// What is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Fresh,
    /// Every message has been processed before.
    Duplicates,
    /// One message, over and over.
    Hot,
    /// Fresh messages, so many at a time.
    Batches(usize),
}

/// Messages a second of each way in each round.
#[derive(Clone, Debug)]
pub(crate) struct Race {
    ways: Vec<Way>,
    rates: Vec<Vec<f64>>,
}

/// Half of the rounds lie between `low` and `high`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        // Between two values, as far as the quarter is.
        #[expect(clippy::cast_precision_loss, reason = "a few rounds")]
        let at = |quarter: usize| {
            let (below, rest) = ((values.len() - 1) * quarter / 4, (values.len() - 1) * quarter % 4);
            let above = values[(below + 1).min(values.len() - 1)];
            values[below] + (above - values[below]) * rest as f64 / 4.0
        };
        Self { low: at(1), median: at(2), high: at(3) }
    }
}

impl Race {
    pub(crate) fn new(ways: &[Way]) -> Self {
        Self { ways: ways.to_vec(), rates: vec![Vec::new(); ways.len()] }
    }

    fn rates(&self, way: Way) -> &[f64] {
        let index = self.ways.iter().position(|one| *one == way).expect("a way of this race");
        &self.rates[index]
    }

    /// The messages a second.
    pub(crate) fn rate(&self, way: Way) -> Spread {
        Spread::of(self.rates(way).to_vec())
    }

    /// How many times as many messages a second, round by round.
    pub(crate) fn ratio(&self, way: Way, to: Way) -> Spread {
        Spread::of(self.rates(way).iter().zip(self.rates(to)).map(|(way, to)| way / to).collect())
    }

    pub(crate) fn ways(&self) -> &[Way] {
        &self.ways
    }

    pub(crate) fn add(&mut self, way: usize, rate: f64) {
        self.rates[way].push(rate);
    }
}

pub(crate) fn id() -> String {
    format!("{:032x}", fastrand::u128(..))
}

/// So many workers at once.
pub(crate) async fn race<W: Ways>(world: &W, stream: Stream, workers: usize, ways: &[Way], effort: Effort) -> Race {
    let mut result = Race::new(ways);
    // How many messages fill a turn: from a warm-up, which also prepares statements and opens connections.
    let mut counts = Vec::new();
    for way in ways {
        let warm_up = if let Stream::Batches(size) = stream { size * 3 } else { 20 };
        turn(world, stream, workers, *way, warm_up * workers).await;
        let rate = turn(world, stream, workers, *way, warm_up * workers).await;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small positive number")]
        let count = ((rate * effort.turn.as_secs_f64()) as usize).max(warm_up * workers);
        // Duplicates have to be processed first.
        counts.push(if stream == Stream::Duplicates { count.min(MOST_DUPLICATES) } else { count });
    }
    for round in 0..effort.rounds {
        for step in 0..ways.len() {
            // Each way goes first in its turn: what the last one has left to the disk is somebody else's.
            let way = (round + step) % ways.len();
            let rate = turn(world, stream, workers, ways[way], counts[way]).await;
            result.add(way, rate);
        }
    }
    result
}

/// Messages a second.
pub(crate) async fn turn<W: Ways>(world: &W, stream: Stream, workers: usize, way: Way, messages: usize) -> f64 {
    let each = messages.div_ceil(workers);
    let hot = id();
    let mut ids: Vec<Vec<String>> = Vec::new();
    for _ in 0..workers {
        ids.push((0..each).map(|_| if stream == Stream::Hot { hot.clone() } else { id() }).collect());
    }
    match stream {
        Stream::Fresh | Stream::Batches(_) => {}
        Stream::Duplicates => {
            for id in ids.iter().flatten() {
                assert!(world.single(way, id).await, "{id} is new");
            }
        }
        Stream::Hot => assert!(world.single(way, &hot).await, "{hot} is new"),
    }
    world.idle().await;
    let start = Instant::now();
    let mut running = JoinSet::new();
    for ids in ids {
        let world = world.clone();
        running.spawn(async move {
            if let Stream::Batches(size) = stream {
                for batch in ids.chunks(size) {
                    assert_eq!(world.batch(way, batch.to_vec()).await, batch.len(), "{way:?}");
                }
            } else {
                for id in &ids {
                    assert_eq!(world.single(way, id).await, stream == Stream::Fresh, "{way:?} {id}");
                }
            }
        });
    }
    while let Some(ended) = running.join_next().await {
        ended.expect("no worker panics");
    }
    #[expect(clippy::cast_precision_loss, reason = "small")]
    let messages = (each * workers) as f64;
    messages / start.elapsed().as_secs_f64()
}
