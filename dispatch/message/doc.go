// Package message makes what a worker receives for a tick: the JSON, which is the same whether the tick is pushed or leased, and the
// lease token, with which a worker ends that one attempt and no other.
//
// All members of a cohort that fire at one time share the times in their messages, local and upcoming ones too: [Messages] keeps that
// part. The package writes no table.
package message
