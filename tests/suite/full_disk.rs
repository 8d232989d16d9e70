//! A disk that is full, on a private PostgreSQL. MariaDB ends itself when `InnoDB` has no room for a rollback, and SQLite's test is in
//! `sqlite_only`.

use std::process::{Command, Stdio};

use idempotent_runtime::{Disposition, Error};
use servers::{Kind, Server};

use crate::handlers::{self, Step};
use crate::harness::{World, connect};

/// A file system of four megabytes, unmounted when it is dropped. None without the right to mount one.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let folder = tempfile::Builder::new().prefix("idempotent-small-").tempdir().ok()?;
        let path = folder.path().display().to_string();
        let run = |program: &str, arguments: &[&str]| {
            let run = Command::new(program).args(arguments).stderr(Stdio::null()).status();
            run.is_ok_and(|status| status.success())
        };
        run("mount", &["-t", "tmpfs", "-o", "size=4m", "tmpfs", &path]).then_some(())?;
        let disk = Self(folder);
        run("chown", &["postgres", &path]).then_some(disk)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

async fn bulk(world: &World) {
    world.run("CREATE TABLE bulk (data TEXT) TABLESPACE small").await;
    world.run("ALTER TABLE bulk ALTER data SET STORAGE EXTERNAL").await;
}

#[tokio::test]
async fn a_full_disk_undoes_everything_and_leaves_a_sound_connection() {
    let Some(disk) = SmallDisk::mount() else {
        eprintln!("SKIPPED: no right to mount a small file system, which a full disk needs");
        return;
    };
    let server = Server::start_durable(Kind::Postgres).await.expect("a server");
    let fresh = server.fresh_database().await;
    let world = World { pool: connect(&fresh, 1).await, observer: connect(&fresh, 1).await, fresh };
    idempotent_runtime::migrate(&world.pool).await.expect("the claim table");
    world.run("CREATE TABLE effects (id VARCHAR(100) NOT NULL)").await;
    world.run(&format!("CREATE TABLESPACE small LOCATION '{}'", disk.0.path().display())).await;
    bulk(&world).await;
    let fill = "INSERT INTO bulk SELECT repeat(md5(i::text), 60000) FROM generate_series(1, 10) AS i";
    for round in 0..3 {
        let id = format!("round-{round}");
        let error = handlers::scripted(&world.pool, &id, &[Step::Effect, Step::Run(fill)]).await.expect_err("full");
        assert_eq!((error.is_transient(), error.disposition()), (true, Disposition::Retry), "{error:?}");
        let swallowed = handlers::scripted(&world.pool, &id, &[Step::Effect, Step::Try(fill)]).await;
        assert!(matches!(swallowed, Err(Error::TransactionLost(_))), "{swallowed:?}");
        assert_eq!((world.effects_of(&id).await, world.claims().await), (0, round), "neither claim nor effect");
        assert!(handlers::scripted(&world.pool, &id, &[Step::Effect]).await.expect("no error").is_processed());
    }
    // Then the claim itself finds no room.
    world.run("DROP TABLE bulk").await;
    world.run("ALTER TABLE processed_messages SET TABLESPACE small").await;
    world.run("ALTER INDEX processed_messages_pkey SET TABLESPACE small").await;
    bulk(&world).await;
    // By small steps, so that what the last one had taken is little.
    while sqlx::Executor::execute(&world.observer, "INSERT INTO bulk VALUES (repeat('x', 7000))").await.is_ok() {}
    let mut refused = 0;
    for number in 0..200 {
        let id = format!("{}-{number}", "long".repeat(40));
        match handlers::count(&world.pool, &id).await {
            Ok(outcome) => assert!(outcome.is_processed(), "{outcome:?}"),
            Err(error) => {
                refused += 1;
                let error = Error::from(error);
                assert_eq!((error.is_transient(), error.disposition()), (true, Disposition::Retry), "{error:?}");
            }
        }
    }
    assert!(refused > 0, "the disk was never full");
    world.run("DROP TABLE bulk").await;
    for number in 0..200 {
        handlers::count(&world.pool, &format!("{}-{number}", "long".repeat(40))).await.expect("there is room");
    }
    assert_eq!(world.effects_of("counted").await, 200, "one effect each");
}
