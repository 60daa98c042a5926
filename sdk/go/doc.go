// Package sdk uses a Bailey server from Go:
//
//	sandbox, err := sdk.FromLocal(ctx, ".", nil)
//	if err != nil {
//		return err
//	}
//	defer sandbox.Destroy(context.WithoutCancel(ctx))
//	result, err := sandbox.Run(ctx, sdk.Shell("go test ./..."))
//
// Without an address, a server is started that ends with this program. A program
// that wants sandboxes of its own, with no server at all, uses the package at the
// root of this module instead.
package sdk
