//! Several processes at once, and processes that die (C7, C8).

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use crate::harness::World;

fn worker(world: &World, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_worker"));
    command.arg(crate::url(&world.fresh)).args(arguments);
    command
}

/// How often: once in the ordinary run, `IDEMPOTENT_TEST_ROUNDS=100` for the long one.
fn rounds() -> usize {
    std::env::var("IDEMPOTENT_TEST_ROUNDS")
        .map_or(3, |rounds| rounds.parse().expect("IDEMPOTENT_TEST_ROUNDS is a number"))
}

#[tokio::test]
async fn sixty_four_deliveries_from_four_processes_have_one_effect() {
    let world = World::new().await;
    for round in 0..rounds() {
        let id = format!("round-{round}");
        let processes: Vec<_> = (0..4)
            .map(|_| worker(&world, &["deliver", &id, "16"]).stdout(Stdio::piped()).spawn().expect("a worker"))
            .collect();
        let mut sums = [0; 3];
        for process in processes {
            let output = process.wait_with_output().expect("a worker's output");
            let output = String::from_utf8_lossy(&output.stdout).into_owned();
            let counts = output.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse::<usize>().ok());
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum += count;
            }
        }
        assert_eq!(sums, [1, 63, 0], "processed, duplicate, failed in round {round}");
        assert_eq!(world.effects_of(&id).await, 1);
    }
}

#[tokio::test]
async fn a_process_killed_inside_the_handler_leaves_nothing_and_the_redelivery_runs() {
    let world = World::new().await;
    let died = worker(&world, &["crash-inside", "1"]).status().expect("a worker");
    assert!(!died.success());
    assert_eq!((world.effects().await, world.claims().await), (0, 0));
    let output = worker(&world, &["deliver", "1"]).output().expect("a worker");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "processed 1, duplicate 0, failed 0\n");
    assert_eq!((world.effects().await, world.claims().await), (1, 1));
}

#[tokio::test]
async fn a_process_killed_between_commit_and_acknowledgement_is_a_duplicate_when_redelivered() {
    let world = World::new().await;
    let died = worker(&world, &["crash-after", "1"]).status().expect("a worker");
    assert!(!died.success());
    assert_eq!((world.effects().await, world.claims().await), (1, 1));
    let output = worker(&world, &["deliver", "1"]).output().expect("a worker");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "processed 0, duplicate 1, failed 0\n");
    assert_eq!((world.effects().await, world.claims().await), (1, 1));
}

#[tokio::test]
async fn a_consumer_killed_twenty_times_that_resumes_from_its_position_applies_each_offset_once() {
    const OFFSETS: usize = 420;
    let world = World::new().await;
    for kill in 1..=20 {
        let mut consumer = worker(&world, &["stream", "orders-0", &OFFSETS.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("a worker");
        // Killed at any moment after a few offsets more: inside a handler, in a commit, or between two.
        let mut lines = BufReader::new(consumer.stdout.take().expect("its output")).lines();
        let applied = lines.by_ref().take(4 + kill % 17).flatten().count();
        assert!(applied > 0, "it has applied something before kill {kill}");
        std::thread::sleep(std::time::Duration::from_micros(fastrand::u64(0..3000)));
        consumer.kill().expect("killed");
        consumer.wait().expect("it is gone");
        drop(lines);
    }
    let applied = world.effects().await;
    assert!(applied < i64::try_from(OFFSETS).unwrap(), "it was killed on the way");
    let ended = worker(&world, &["stream", "orders-0", &OFFSETS.to_string()]).output().expect("a worker");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    println!("{applied} offsets applied under 20 kills, {OFFSETS} in the end");
    assert_eq!(world.effects().await, i64::try_from(OFFSETS).unwrap());
    assert_eq!(world.number("SELECT count(*) - count(DISTINCT id) FROM effects").await, 0);
}
