// Package ops holds what surrounds the code: the images and the unit file that run it, the NATS server's configuration
// (natsconf), the decisions behind it (adr), and the tests of the shape of the whole tree.
//
// Promises, each a test here: a package imports only those of ours that the table in layout_test.go gives it; every
// package says what it is, once; no file outgrows a reader; pocketcoder-shell links only its protocol; the images
// install the versions that the bridge was written against.
//
// It must not hold code that runs in the product.
package ops
