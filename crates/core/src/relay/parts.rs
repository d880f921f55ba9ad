//! The parts of the loop, whatever it is fed from.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use super::control::StopFlags;
use super::ports::{Clock, Meters, PassMeter, Recorder};
use super::read_back::ReadBack;
use super::state_file::StateFile;
use super::stops::StandingStops;
use crate::base::random::Random;
use crate::dead_letter::tail_event::{ReadRequests, TailEvent};
use crate::dead_letter::writer::DeadLetterWriter;
use crate::delivery::settings::DeliverySettings;
use crate::sink::driver::SinkFactory;
use crate::source::settings::SourceSettings;
use crate::trace::event_spans::EventSpans;

/// The parts of the loop besides its feed.
pub struct Parts {
    pub source: SourceSettings,
    pub delivery: DeliverySettings,
    pub read_back: ReadBack,
    pub sink_factory: SinkFactory,
    pub dead_letter_writer: DeadLetterWriter,
    pub spans: EventSpans,
    /// None where no dead letters are written, or where they cannot be read.
    pub tail_events: Option<Receiver<TailEvent>>,
    pub tail_requests: ReadRequests,
    pub stops: Arc<StandingStops>,
    pub flags: Arc<StopFlags>,
    pub state_file: StateFile,
    pub meters: Arc<dyn Meters>,
    pub pass_meter: Box<dyn PassMeter>,
    pub recorder: Box<dyn Recorder>,
    pub clock: Arc<dyn Clock>,
    /// From which all is drawn that others must not foresee.
    pub random: Random,
}
