package chunk

// owningChunks is a common table of owners of open chunks that are not among processes, which are given as a query of their
// numbers. It looks between two of those numbers, so that it reads no chunk of theirs: chunks that are done are many more, and the
// index keeps an entry of each while an old snapshot is open.
func OwningChunks(processes string) string {
	return `known AS (
				SELECT id, lead(id, 1, 9223372036854775807) OVER (ORDER BY id) AS next
				FROM (` + processes + ` UNION SELECT -9223372036854775808) p (id)
			), owning AS (
				SELECT n.owner, k.next
				FROM known k
				CROSS JOIN LATERAL (
					SELECT owner
					FROM chunk
					WHERE opened_at IS NOT NULL AND done_at IS NULL AND owner > k.id AND owner < k.next
					ORDER BY owner
					LIMIT 1
				) n
				UNION ALL
				SELECT n.owner, o.next
				FROM owning o
				CROSS JOIN LATERAL (
					SELECT owner
					FROM chunk
					WHERE opened_at IS NOT NULL AND done_at IS NULL AND owner > o.owner AND owner < o.next
					ORDER BY owner
					LIMIT 1
				) n
			)`
}
