//! Plays seeds to each bug that can be put into the core, until it is caught.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use walrelay_core::mutants::Mutant;

use crate::options::Options;
use crate::run;
use crate::scenarios::Scenario;

/// Where the seeds of the three attempts begin.
const STARTS: [u64; 3] = [1_000_001, 2_000_001, 3_000_001];

/// The scenario with which a mutant is played, where seeds of all kinds show it rarely.
fn scenario_of(mutant: Mutant) -> Option<Scenario> {
    use Mutant::*;
    match mutant {
        FirstFloorByPeers => Some(Scenario::Takeovers),
        ConfirmsAfterCrash | FoundBeforeCrash | PeerForgottenInCrash => Some(Scenario::PeerInCrash),
        FinalPositionUnsigned | PeerForgottenAfterFailover | UnsignedTakenForOwn => {
            Some(Scenario::LastReports)
        }
        StopsBesidePeer => Some(Scenario::StopsInFlight),
        SessionBegunWhenSeen | ShortSuspensionsForgotten => Some(Scenario::Suspensions),
        ConfirmsBehindPeer | NoTraceNotAwaited => Some(Scenario::TracesUsedUp),
        RabbitSendsAfterLease => Some(Scenario::WaitsInSink),
        EmptyTakenForKnown | OverlapUnseen => Some(Scenario::HistoryAnew),
        MarksOutOfOrder => Some(Scenario::SlotSetBack),
        KafkaAnyPartition | KafkaStoredBefore | KafkaTopicAnewTrusted | KafkaUnderWayForgotten => {
            Some(Scenario::KafkaTroubles)
        }
        RabbitDoubtfulFirst | RabbitMissingForEver => Some(Scenario::RabbitTroubles),
        RabbitUnansweredForgotten => Some(Scenario::ClosesBesideSilence),
        _ => None,
    }
}

/// How long a mutant has lived.
#[derive(Clone, Debug)]
pub struct Verdict {
    pub mutant: Mutant,
    /// The number of the seed that caught it, in each attempt.
    pub seeds: Vec<Option<u64>>,
    /// The first sentence of the checker.
    pub said: String,
    /// A run that shows it.
    pub options: Options,
    /// The scenario with which it was played.
    pub scenario: Option<Scenario>,
}

impl Verdict {
    #[must_use]
    pub fn is_caught(&self) -> bool {
        self.seeds.iter().all(Option::is_some)
    }

    fn mean(&self) -> String {
        let caught: Vec<u64> = self.seeds.iter().copied().flatten().collect();
        if !self.is_caught() {
            return format!("{} of {} attempts", caught.len(), self.seeds.len());
        }
        (caught.iter().sum::<u64>() / caught.len() as u64).to_string()
    }
}

/// As a row of the table in docs/proof.md.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Verdict { mutant, said, scenario, .. } = self;
        let scenario = scenario.map(|it| format!(", `--scenario {it:?}`")).unwrap_or_default();
        let (name, what, mean) = (mutant.name(), mutant.what(), self.mean());
        write!(f, "| `{name}` | {what} | {mean}{scenario} | {said} |")
    }
}

/// Judges all, or the one of the options, on so many threads; one that survives `seeds_max` seeds is not caught. `tell` hears of
/// each as it is done.
pub fn judge_all(
    options: &Options,
    seeds_max: u64,
    threads: usize,
    tell: impl Fn(&Verdict) + Sync,
) -> Vec<Verdict> {
    let all = Mutant::ALL.iter().copied();
    let wanted = |it: &Mutant| options.mutant.is_none_or(|name| name == it.name());
    let mutants: Vec<Mutant> = all.filter(wanted).collect();
    let (next, verdicts) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let verdict = judge(*mutant, options, seeds_max);
                    tell(&verdict);
                    verdicts.lock().unwrap_or_else(PoisonError::into_inner).push(verdict);
                }
            });
        }
    });
    let mut verdicts = verdicts.into_inner().unwrap_or_else(PoisonError::into_inner);
    verdicts.sort_by_key(|verdict: &Verdict| verdict.mutant as usize);
    verdicts
}

/// Plays seeds to one until it is caught, three times. One that survives the first attempt gets no
/// other. It is not played with its own scenario if the options name one, or a sink.
pub fn judge(mutant: Mutant, options: &Options, seeds_max: u64) -> Verdict {
    let scenario = match (options.scenario, options.sink) {
        (None, None) => scenario_of(mutant),
        (given, _) => given,
    };
    let options = Options { scenario, mutant: Some(mutant.name()), ..options.clone() };
    let mut verdict = Verdict {
        mutant,
        seeds: Vec::new(),
        said: String::new(),
        options: Options::default(),
        scenario,
    };
    for start in STARTS {
        let mut caught = None;
        for index in 0..seeds_max {
            let seed = start + index;
            let options = Options { seed, ..options.clone() };
            let Some(violation) = run(&options, false).violation else { continue };
            // Without the bug the same schedule must be in order, or it shows something else.
            if run(&Options { mutant: None, ..options.clone() }, false).violation.is_some() {
                continue;
            }
            caught = Some(index + 1);
            if verdict.said.is_empty() {
                (verdict.said, verdict.options) = (violation.what, options);
            }
            break;
        }
        verdict.seeds.push(caught);
        if caught.is_none() {
            break;
        }
    }
    verdict
}

/// The name as it is known, or which names there are.
pub(crate) fn named(name: &str) -> Result<&'static str, String> {
    let mutant = Mutant::ALL.iter().find(|mutant| mutant.name() == name);
    mutant.map(|mutant| mutant.name()).ok_or_else(|| {
        let names: Vec<&str> = Mutant::ALL.iter().map(|mutant| mutant.name()).collect();
        format!("there is no mutant `{name}`, but {}", names.join(", "))
    })
}

/// Puts the bug of this run into what this thread does, or none.
pub(crate) fn set(options: &Options) {
    let mutant = Mutant::ALL.iter().find(|mutant| Some(mutant.name()) == options.mutant);
    walrelay_core::mutants::set(mutant.copied());
}
