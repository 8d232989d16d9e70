//! Every single message of a handler's conversation, in each direction, has been the last one that passed: the connection was
//! closed there, and once more it stalled. Redelivered, there is one effect, and the pool is healthy (G3, G4).

use std::sync::Arc;
use std::time::{Duration, Instant};

use idempotent_runtime::{Error, Outcome};
use servers::{Cut, Proxy};
use sqlx::Pool;
use tokio::task::JoinSet;

use crate::handlers::{self, Step};
use crate::harness::World;
use crate::wire::{returned, through};
use crate::{Db, replayed};

/// More than any conversation has.
const MOST_POINTS: usize = 120;
/// How long a client waits for a server that does not answer.
const PATIENCE: Duration = Duration::from_millis(400);
/// A redelivery may meet what the stalled connection still holds, until that is closed.
const LONGEST: Duration = Duration::from_secs(40);

#[derive(Clone, Copy, Debug)]
enum Direction {
    ToServer,
    ToClient,
}

impl Direction {
    const fn cut(self, messages: usize) -> Cut {
        match self {
            Self::ToServer => Cut::after_sent(messages),
            Self::ToClient => Cut::after_received(messages),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Conversation {
    Processed,
    /// With a stored answer.
    Answered,
    /// The body fails.
    Failed,
    Duplicate,
}

impl Conversation {
    const ALL: [Self; 4] = [Self::Processed, Self::Answered, Self::Failed, Self::Duplicate];

    async fn prepare(self, pool: &Pool<Db>, id: &str) {
        if matches!(self, Self::Duplicate) {
            self.redeliver(pool, id).await.expect("processed");
        }
    }

    async fn deliver(self, pool: &Pool<Db>, id: &str) -> Result<Outcome<()>, Error> {
        match self {
            Self::Failed => handlers::scripted(pool, id, &[Step::Effect, Step::Fail]).await,
            _ => self.redeliver(pool, id).await,
        }
    }

    async fn redeliver(self, pool: &Pool<Db>, id: &str) -> Result<Outcome<()>, Error> {
        match self {
            Self::Failed => handlers::scripted(pool, id, &[Step::Effect]).await,
            Self::Answered => Ok(match replayed::charge(pool, id, "answer").await? {
                Outcome::Processed(_) => Outcome::Processed(()),
                _ => Outcome::Replayed(()),
            }),
            _ => Ok(handlers::record(pool, id).await?),
        }
    }
}

/// Cuts at each point until a conversation ends before it, and says how many points it has.
async fn close_at_every_point(world: &World, conversation: Conversation, direction: Direction) -> usize {
    let proxy = Proxy::start(&crate::url(&world.fresh)).await;
    let pool = through(&proxy).await;
    for warm_up in 0..3 {
        let id = format!("closed-{conversation:?}-{direction:?}-warm-up-{warm_up}");
        let _ = conversation.deliver(&pool, &id).await;
        conversation.redeliver(&pool, &id).await.expect("no error");
    }
    for point in 0..MOST_POINTS {
        let id = format!("closed-{conversation:?}-{direction:?}-{point}");
        conversation.prepare(&pool, &id).await;
        returned(&pool).await;
        proxy.cut(direction.cut(point));
        let outcome = conversation.deliver(&pool, &id).await;
        let ended_before = proxy.is_cut_pending();
        proxy.cut(Cut::before(usize::MAX)); // none
        settled(world, &pool, conversation, &id, outcome.ok()).await;
        if ended_before {
            return point;
        }
    }
    panic!("{conversation:?} has more than {MOST_POINTS} messages");
}

/// Redelivers, and looks at what is there.
async fn settled(world: &World, pool: &Pool<Db>, conversation: Conversation, id: &str, outcome: Option<Outcome<()>>) {
    let effects = world.effects_of(id).await;
    if let Some(outcome) = outcome {
        assert_eq!(effects, 1, "{id}: {outcome:?}");
    }
    let start = Instant::now();
    let redelivered = loop {
        match conversation.redeliver(pool, id).await {
            Ok(outcome) => break outcome,
            Err(error) if error.is_transient() && start.elapsed() < LONGEST => {}
            Err(error) => panic!("{id}: {error:?}"),
        }
    };
    // What a stalled request was waiting for may have been carried out since.
    if effects == 1 {
        assert!(redelivered.is_duplicate(), "{id}: {redelivered:?}");
    }
    assert_eq!(world.effects_of(id).await, 1, "{id}");
    let next = format!("{id}-next");
    assert!(handlers::record(pool, &next).await.expect("a healthy pool").is_processed(), "{id}");
    assert_eq!(world.effects_of(&next).await, 1, "{id}");
}

/// The client gives up, and drops the handler.
async fn stall_at(world: &World, conversation: Conversation, direction: Direction, point: usize) {
    let proxy = Proxy::start(&crate::url(&world.fresh)).await;
    let pool = through(&proxy).await;
    let id = format!("stalled-{conversation:?}-{direction:?}-{point}");
    for warm_up in 0..2 {
        let id = format!("{id}-warm-up-{warm_up}");
        let _ = conversation.deliver(&pool, &id).await;
        conversation.redeliver(&pool, &id).await.expect("no error");
    }
    conversation.prepare(&pool, &id).await;
    returned(&pool).await;
    proxy.cut(direction.cut(point).stalling());
    let outcome = tokio::time::timeout(PATIENCE, conversation.deliver(&pool, &id)).await;
    proxy.cut(Cut::before(usize::MAX));
    settled(world, &pool, conversation, &id, outcome.ok().and_then(Result::ok)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_breaks_or_stalls_after_any_message_leaves_one_effect_and_a_healthy_pool() {
    let world = Arc::new(World::with_connections(1).await);
    let start = Instant::now();
    let mut points = Vec::new();
    for conversation in Conversation::ALL {
        for direction in [Direction::ToServer, Direction::ToClient] {
            let found = close_at_every_point(&world, conversation, direction).await;
            // What closes a duplicate on MariaDB nobody waits for.
            assert!(found >= 1, "{conversation:?} {direction:?}: {found}");
            points.extend((0..found).map(|point| (conversation, direction, point)));
        }
    }
    let closed = start.elapsed();
    let mut stalls = JoinSet::new();
    let mut left = points.iter().copied();
    loop {
        while stalls.len() < 40
            && let Some((conversation, direction, point)) = left.next()
        {
            let world = Arc::clone(&world);
            stalls.spawn(async move { stall_at(&world, conversation, direction, point).await });
        }
        let Some(stalled) = stalls.join_next().await else { break };
        stalled.expect("one effect and a healthy pool");
    }
    println!("{} points, closed in {closed:?}, closed and stalled in {:?}", points.len(), start.elapsed());
    assert_eq!(world.number("SELECT count(*) - count(DISTINCT id) FROM effects").await, 0);
}
