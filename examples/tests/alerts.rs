//! The alert rules, read by promtool and evaluated on what `metrics_service` really shows.
//!
//! The service is given messages and scraped. Each scrape stands for five minutes, because a day is too long for a test;
//! the values are those that were scraped, and ages of time stamps are kept.

mod built;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::SystemTime;
use std::{env, fs};

use built::example;

/// Seconds between two scrapes, as the rules see them.
const STEP: f64 = 300.0;
/// A day and an hour of what is usual, and then two hours of what is not.
const USUAL: usize = 300;
const STORM: usize = 24;

fn alerts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("alerts.yml")
}

fn promtool(arguments: &[&str], file: &Path) -> String {
    let run = Command::new("promtool").args(arguments).arg(file).output();
    let output = run.unwrap_or_else(|error| {
        panic!("promtool does not start ({error}). On Debian: apt-get install -y --no-install-recommends prometheus")
    });
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "promtool {arguments:?} {}:\n{said}", file.display());
    said
}

#[test]
fn promtool_accepts_the_rules() {
    let said = promtool(&["check", "rules"], &alerts());
    assert!(said.contains("8 rules found"), "{said}");
}

/// The service, killed with this value.
struct Service {
    child: Child,
    url: String,
    client: reqwest::Client,
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Service {
    fn start() -> Self {
        let mut child = example("metrics_service")
            .args(["--port", "0", "--purge-every", "1"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the service starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("its first line");
        let url = line.split_whitespace().find_map(|word| word.strip_suffix('.').filter(|url| url.starts_with("http")));
        let url = url.unwrap_or_else(|| panic!("no address in {line}")).to_owned();
        Self { child, url, client: reqwest::Client::new() }
    }

    async fn deliver(&self, sender: &str, id: usize) -> String {
        let url = format!("{}/deliveries/{sender}/evt_{id}", self.url);
        let answer = self.client.post(url).send().await.expect("an answer");
        assert!(answer.status().is_success(), "{answer:?}");
        answer.text().await.expect("text").trim().to_owned()
    }

    /// A delivery without an id.
    async fn deliver_blank(&self, sender: &str) {
        let answer = self.client.post(format!("{}/deliveries/{sender}/%20", self.url)).send().await;
        assert_eq!(answer.expect("an answer").status(), 400);
    }

    async fn scrape(&self) -> String {
        self.client.get(format!("{}/metrics", self.url)).send().await.expect("an answer").text().await.expect("text")
    }
}

/// What was scraped, series by series; `None` before a series was there.
#[derive(Default)]
struct Scrapes {
    series: BTreeMap<String, Vec<Option<f64>>>,
    count: usize,
}

impl Scrapes {
    fn add(&mut self, text: &str) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a few hundred scrapes")]
        let time = self.count as f64 * STEP;
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
            let value: f64 = value.parse().unwrap_or_else(|error| panic!("{line}: {error}"));
            // As old, or as far ahead, as it really was.
            let value = if series.contains("_timestamp_seconds") { value - now + time } else { value };
            let values = self.series.entry(series.to_owned()).or_default();
            values.resize(self.count, None);
            values.push(Some(value));
        }
        self.count += 1;
    }

    /// Of the last scrape.
    fn last(&self, series: &str) -> f64 {
        let values = self.series.get(series).unwrap_or_else(|| panic!("{series} is not in {:?}", self.series.keys()));
        values.last().copied().flatten().expect("the last value")
    }

    /// For promtool: the scrapes, and then three days in which every value stays, as when service and janitor idle.
    fn input(&self) -> String {
        let mut input = String::new();
        for (series, values) in &self.series {
            let _ = write!(input, "      - series: '{series}'\n        values: '");
            for value in values {
                let _ = match value {
                    Some(value) => write!(input, "{value} "),
                    None => write!(input, "_ "),
                };
            }
            let last = values.last().copied().flatten().expect("the last value");
            let _ = writeln!(input, "{last}+0x864'");
        }
        input
    }
}

/// Minutes from the start, and who is named by an alert then.
fn expect(minutes: usize, alert: &str, firing: &[(&str, &str)]) -> String {
    let mut case = format!("      - eval_time: {minutes}m\n        alertname: {alert}\n        exp_alerts:\n");
    if firing.is_empty() {
        case = case.replace("exp_alerts:\n", "exp_alerts: []\n");
    }
    for (labels, summary) in firing {
        let _ = writeln!(
            case,
            "          - exp_labels: {{severity: warning, {labels}}}\n            exp_annotations: {{summary: \"{summary}\"}}"
        );
    }
    case
}

#[tokio::test]
async fn the_alerts_fire_on_what_the_service_really_shows_and_only_then() {
    let service = Service::start();
    let mut scrapes = Scrapes::default();
    // A janitor that has never purged shows nothing yet.
    while !service.scrape().await.contains("idempotent_last_purge_timestamp_seconds{") {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let mut id = 0;
    for scrape in 0..USUAL + STORM {
        // One duplicate of ten; in the storm eight, of one sender.
        let duplicates = if scrape < USUAL { scrape % 2 } else { 4 };
        for _ in 0..5 - duplicates {
            id += 1;
            assert_eq!(service.deliver("stripe", id).await, "processed");
        }
        for _ in 0..duplicates {
            assert_eq!(service.deliver("stripe", id).await, "duplicate");
        }
        assert_eq!(service.deliver("github", id).await, "processed");
        if scrape >= USUAL {
            service.deliver_blank("github").await;
        }
        scrapes.add(&service.scrape().await);
        if scrape == USUAL {
            // A purge that knows of claims.
            tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
        }
    }
    drop(service);

    let of = |sender: &str, outcome: &str| {
        let labels = format!("consumer=\"metrics.count\",sender=\"{sender}\",outcome=\"{outcome}\"");
        scrapes.last(&format!("idempotent_messages_total{{{labels}}}")).to_string()
    };
    assert_eq!([of("stripe", "processed"), of("stripe", "duplicate")], ["1374", "246"]);
    let handled = scrapes.last("idempotent_handler_duration_seconds_count{consumer=\"metrics.count\"}");
    assert_eq!(handled.to_string(), (1374 + 324).to_string(), "bodies");
    let claimed = scrapes.last("idempotent_claim_duration_seconds_count{consumer=\"metrics.count\"}");
    assert_eq!(claimed.to_string(), (1374 + 246 + 324).to_string(), "claims, those of duplicates too");

    let usual = (USUAL - 1) * 5;
    let last = (USUAL + STORM - 1) * 5;
    let stripe = [(
        "consumer: metrics.count, sender: stripe",
        "metrics.count: three times as many duplicates from stripe as the day before",
    )];
    let failing = [("consumer: metrics.count", "metrics.count: three times as many deliveries fail as the day before")];
    let table = "table: processed_messages";
    let no_purge = [(table, "processed_messages: no purge for a day")];
    let old_claims = [(table, "processed_messages: a claim is more than three hours past its expiry")];
    let day = 24 * 60;
    let cases = [
        expect(usual, "IdempotentDuplicatesRise", &[]),
        expect(last, "IdempotentDuplicatesRise", &stripe),
        expect(last + day, "IdempotentDuplicatesRise", &[]),
        expect(usual, "IdempotentFailuresRise", &[]),
        expect(last, "IdempotentFailuresRise", &failing),
        expect(last + day, "IdempotentFailuresRise", &[]),
        expect(last, "IdempotentNoPurge", &[]),
        expect(last + day - 30, "IdempotentNoPurge", &[]),
        expect(last + day + 30, "IdempotentNoPurge", &no_purge),
        expect(last, "IdempotentOldClaims", &[]),
        // A retention of an hour, three hours, and a quarter.
        expect(last + 4 * 60 - 30, "IdempotentOldClaims", &[]),
        expect(last + 4 * 60 + 30, "IdempotentOldClaims", &old_claims),
        expect(last + 2 * day, "IdempotentNeverPurged", &[]),
    ];
    // Another service, of which the janitor was never started.
    let never: Vec<_> =
        scrapes.series.iter().filter(|(series, _)| series.starts_with("idempotent_messages_total")).collect();
    let never = Scrapes {
        series: never.into_iter().map(|(series, values)| (series.clone(), values.clone())).collect(),
        count: scrapes.count,
    };
    let never_purged = [("", "messages are claimed, and no instance has purged for a day")];
    let never_purged = expect(last, "IdempotentNeverPurged", &never_purged).replace("warning, }", "warning}");
    let tests = format!(
        "rule_files: ['{}']\nevaluation_interval: 5m\ntests:\n  - interval: 5m\n    input_series:\n{}    alert_rule_test:\n{}  \
         - interval: 5m\n    input_series:\n{}    alert_rule_test:\n{never_purged}",
        alerts().display(),
        scrapes.input(),
        cases.concat(),
        never.input(),
    );
    let file = tempfile::Builder::new().suffix(".yml").tempfile().expect("a file");
    fs::write(file.path(), &tests).expect("written");
    if let Some(copy) = env::var_os("ALERT_TESTS") {
        fs::write(copy, &tests).expect("a copy to look at");
    }
    let said = promtool(&["test", "rules"], file.path());
    assert!(said.contains("SUCCESS"), "{said}");
}
