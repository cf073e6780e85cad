use super::Stop;
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}
pub(super) fn run(_: &Arguments) -> Result<(), Stop> {
    Ok(())
}
