//! On the wire: how many replies a handler waits for, and what happens when a connection is cut (G4, D13).

use std::time::Duration;

use idempotent_runtime::{Disposition, Error, commit};
use servers::{Cut, Proxy};
use sqlx::Pool;
use sqlx::pool::PoolOptions;

use crate::batched;
use crate::handlers;
use crate::harness::World;
use crate::hostile;
use crate::{Db, ROUND_TRIPS, RoundTrips};

/// One connection through the proxy, without the pool's ping.
pub(crate) async fn through(proxy: &Proxy) -> Pool<Db> {
    let options = PoolOptions::new().max_connections(1).test_before_acquire(false);
    options.acquire_timeout(Duration::from_secs(20)).connect(proxy.url()).await.expect("the database behind the proxy")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_waits_for_no_more_replies_than_promised() {
    let world = World::with_connections(1).await;
    let proxy = Proxy::start(&crate::url(&world.fresh)).await;
    let pool = through(&proxy).await;
    for warm_up in ["a", "b", "b"] {
        handlers::record(&pool, warm_up).await.unwrap();
    }
    let mut counted = RoundTrips::default();

    returned(&pool).await;
    proxy.reset();
    let (outcome, trips) = proxy.round_trips_of(handlers::record(&pool, "fresh")).await;
    assert!(outcome.unwrap().is_processed());
    let fresh_log = proxy.log();
    counted.fresh = trips;

    returned(&pool).await;
    let (outcome, trips) = proxy.round_trips_of(handlers::record(&pool, "fresh")).await;
    assert!(outcome.unwrap().is_duplicate());
    counted.duplicate = trips;

    let mut tx = pool.begin().await.unwrap();
    handlers::record(&mut tx, "joined-warm-up").await.unwrap();
    let (outcome, trips) = proxy.round_trips_of(handlers::record(&mut tx, "joined")).await;
    assert!(outcome.unwrap().is_processed());
    counted.joined = trips;
    let (outcome, trips) = proxy.round_trips_of(handlers::record(&mut tx, "joined")).await;
    assert!(outcome.unwrap().is_duplicate());
    counted.joined_duplicate = trips;
    commit(tx).await.unwrap();

    returned(&pool).await;
    let ((), trips) = proxy.round_trips_of(by_hand(&pool)).await;
    counted.by_hand = trips;
    println!("round trips that are waited for: {counted:?}");
    assert_eq!(counted, ROUND_TRIPS, "{fresh_log:#?}");
}

/// A batch costs the same whatever its length, until a request is full.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_waits_for_the_same_replies_whatever_its_length() {
    let world = World::with_connections(1).await;
    let proxy = Proxy::start(&crate::url(&world.fresh)).await;
    let pool = through(&proxy).await;
    for length in [1, 10, 1000] {
        let batch = |name: &str| (0..length).map(|number| format!("{length}-{name}-{number}")).collect::<Vec<_>>();
        batched::count_all(&pool, batch("warm-up")).await.unwrap();
        returned(&pool).await;
        proxy.reset();
        let (outcome, trips) = proxy.round_trips_of(batched::count_all(&pool, batch("counted"))).await;
        assert_eq!(outcome.unwrap().output, Some(length));
        assert_eq!(trips, crate::BATCH_ROUND_TRIPS, "{length}: {:#?}", proxy.log());
    }
}

/// Waits until the only connection is back in the pool: sqlx pings it on the way, which no handler waits for.
///
/// sqlx counts a connection as idle after others may take it: one that is taken again at once has the count pass zero
/// downwards for a moment, to the highest number there is.
pub(crate) async fn returned(pool: &Pool<Db>) {
    while pool.num_idle() != 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The lines that people write: begin, insert, effect, commit, and no verification.
async fn by_hand(pool: &Pool<Db>) {
    let mut tx = pool.begin().await.unwrap();
    handlers::effect(&mut tx, "claim").await.unwrap();
    handlers::effect(&mut tx, "effect").await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_reply_is_lost_is_unknown_and_redelivery_settles_it() {
    for (cut, committed) in [(Cut::before("COMMIT"), false), (Cut::after("COMMIT"), true)] {
        let world = World::with_connections(1).await;
        let proxy = Proxy::start(&crate::url(&world.fresh)).await;
        let pool = through(&proxy).await;
        handlers::record(&pool, "warm-up").await.unwrap();
        proxy.cut(cut);
        let error = Error::from(handlers::record(&pool, "1").await.unwrap_err());
        assert!(matches!(error, Error::CommitUnknown(_)), "{error:?}");
        assert_eq!((error.is_transient(), error.disposition(), error.http_status()), (true, Disposition::Retry, 503));
        let redelivered = handlers::record(&pool, "1").await.expect("the pool is healthy");
        assert_eq!(redelivered.is_duplicate(), committed);
        assert_eq!((world.effects_of("1").await, world.claims().await), (1, 2));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_cut_at_any_request_leaves_both_or_neither_and_a_healthy_pool() {
    let world = World::with_connections(1).await;
    let proxy = Proxy::start(&crate::url(&world.fresh)).await;
    let pool = through(&proxy).await;
    handlers::record(&pool, "warm-up").await.unwrap();
    let mut cuts = 0;
    for request in 1..=8 {
        for (side, cut) in [("before", Cut::before(request)), ("after", Cut::after(request))] {
            let id = format!("{side}-{request}");
            proxy.reset();
            proxy.cut(cut);
            let outcome = handlers::record(&pool, &id).await;
            if proxy.is_cut_pending() {
                proxy.cut(Cut::before(usize::MAX)); // the handler needs fewer requests than that
            } else {
                cuts += 1;
            }
            let effects = world.effects_of(&id).await;
            if let Ok(outcome) = &outcome {
                assert!(outcome.is_processed() && effects == 1, "{id}: {outcome:?}");
            }
            let redelivered = handlers::record(&pool, &id).await.unwrap_or_else(|error| panic!("{id}: {error:?}"));
            assert_eq!(redelivered.is_duplicate(), effects == 1, "{id}");
            assert_eq!(world.effects_of(&id).await, 1, "{id}");
        }
    }
    assert!(cuts >= 6, "{cuts} cuts: this test has not reached the end of a handler");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_a_message_is_in_the_text_of_a_request() {
    let world = World::with_connections(1).await;
    let proxy = Proxy::start(&crate::url(&world.fresh)).await;
    let pool = through(&proxy).await;
    proxy.reset();
    hostile::attack(&pool, 40).await;
    let requests = proxy.log();
    assert!(requests.len() > 100, "{requests:?}");
    for request in requests {
        assert!(!request.contains("PWNED") && !request.contains("DROP TABLE"), "{request}");
    }
}
