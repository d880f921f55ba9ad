//! The codes of the library as the sink knows them.

use rdkafka::types::RDKafkaErrorCode;
use walrelay_core::sink::kafka::Code;

pub(super) fn code_of(code: RDKafkaErrorCode) -> Code {
    Code::of(code as i32)
}

#[cfg(test)]
mod tests {
    use rdkafka::types::RDKafkaRespErr;

    use super::*;

    /// A release of librdkafka with more codes, or with other texts, turns this red: each code wants
    /// a decision.
    #[test]
    fn every_code_of_the_library_is_known_by_number_name_and_text() {
        let of_library = (-200..=150).filter_map(|number| RDKafkaRespErr::try_from(number).ok());
        let of_library: Vec<String> = of_library
            .map(RDKafkaErrorCode::from)
            .filter(|code| !["Begin", "End", "EndAll"].contains(&format!("{code:?}").as_str()))
            .map(|code| format!("{} {code}", code as i32))
            .collect();
        let mut known = Code::ALL.to_vec();
        known.sort();
        let known: Vec<String> =
            known.iter().map(|code| format!("{} {code}", *code as i32)).collect();
        assert_eq!(known, of_library);
    }
}
