// Package arch tests the architecture rules of this module: which package may import which, which package writes which table, where
// HTTP and River may be used, how large a file and a function may be, and where connections to the database are opened.
// Each rule has a list of its exceptions. A list may only shrink. TestMeasures prints how well the rules hold.
package arch
