package varint_test

import (
	"encoding/binary"
	"fmt"

	"github.com/carillonhq/carillon/internal/varint"
)

// The caller reads a row to its end. Then one check reports whether the whole row was readable.
func ExampleReader() {
	row := binary.AppendUvarint(binary.AppendUvarint(nil, 7), 300)
	r := varint.NewReader(row)
	fmt.Println(r.Next(), r.Next(), r.Whole())

	short := varint.NewReader(row[:2])
	fmt.Println(short.Next(), short.Next(), short.Broken())
	// Output:
	// 7 300 true
	// 7 0 true
}
