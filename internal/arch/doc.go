// Package arch holds, as tests, the rules that our packages keep: which package may import which, which one writes which table,
// where HTTP and River may be used, how large a file and a function may be, and where connections to the database are opened.
// What breaks a rule today is listed beside the rule. Such a list may only shrink. TestMeasures prints how far the rules are kept.
package arch
