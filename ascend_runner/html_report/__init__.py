"""The report of a job as one HTML file, made from its JSON report and the files beside it."""
