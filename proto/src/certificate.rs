//! What is read in a certificate, and beside it.

use std::ops::Range;

use tokio_rustls::rustls::pki_types::CertificateDer;
use yasna::{ASN1Error, ASN1ErrorKind, ASN1Result, BERReader, Tag};

/// Begins the line that says where certificates are renewed. Readers of PEM pass over lines outside of its sections.
const RENEWED_AT: &str = "Renewed-At: ";

/// The line that says where certificates are renewed: host:port, or the absolute path of a folder.
pub(crate) fn renewed_at(at: &str) -> String {
    format!("{RENEWED_AT}{at}\n")
}

/// Where a text with certificates says that they are renewed.
pub(crate) fn where_renewed(pem: &str) -> Option<&str> {
    pem.lines().find_map(|line| line.strip_prefix(RENEWED_AT))
}

/// From when to when a certificate is valid, seconds from 1970; `None` if that cannot be read.
pub(crate) fn validity(certificate: &CertificateDer<'_>) -> Option<Range<i64>> {
    // RFC 5280, 4.1: version, number, algorithm, issuer, validity, and three more; then algorithm and signature.
    let read = yasna::parse_der(certificate, |reader| {
        reader.read_sequence(|reader| {
            let valid = reader.next().read_sequence(|reader| {
                for _ in 0..4 {
                    reader.next().read_der()?;
                }
                let valid = reader.next().read_sequence(|reader| {
                    let start = seconds(reader.next())?;
                    Ok(start..seconds(reader.next())?)
                })?;
                for _ in 0..3 {
                    reader.next().read_der()?;
                }
                Ok(valid)
            })?;
            for _ in 0..2 {
                reader.next().read_der()?;
            }
            Ok(valid)
        })
    });
    read.ok()
}

/// A time, which is written in one of two ways: from 2050 on in the longer one.
fn seconds(reader: BERReader<'_, '_>) -> ASN1Result<i64> {
    match reader.lookahead_tag()? {
        Tag { tag_number: 23, .. } => Ok(reader.read_utctime()?.datetime().unix_timestamp()),
        Tag { tag_number: 24, .. } => {
            let time = reader.read_generalized_time()?;
            Ok(time.datetime().unix_timestamp())
        }
        _ => Err(ASN1Error::new(ASN1ErrorKind::Invalid)),
    }
}
