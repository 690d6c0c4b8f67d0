// Package mlrsearch finds the highest loads that a system forwards within given loss ratios:
// several goals in one search, with short trials first (RFC 9971, Multiple Loss Ratio Search).
//
//	Manager (the caller) ── Search ──▶ Controller (Run) ── load, duration ──▶ Measurer
//	                     ◀─ Results ──                  ◀─── loss ratio ─────
//
// The package is the Controller. It knows nothing of packets: a load is a positive number in
// whatever unit the Measurer uses, and loss is a ratio.
//
// Classification of loads and the conditional throughput are normative and follow the
// appendices of the RFC. Which load is tried next is left to implementations; control.go says
// how it is chosen here.
package mlrsearch
