// Package output prints the API's objects in the format that the user chose: as a table on a terminal, as tab-separated values in a
// pipe, or as JSON, NDJSON, YAML, CSV or names. JSON formats pass the API's own text through, so that payloads and numbers stay exact.
// Lists are printed while they arrive, in constant memory.
package output
