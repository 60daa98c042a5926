package transport

import (
	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	baileyv1 "github.com/bailey-sandbox/bailey/api/bailey/v1"
	rpc "github.com/bailey-sandbox/bailey/api/bailey/v1/baileyv1connect"
	"github.com/bailey-sandbox/bailey/internal/server/caller"
)

// method is what the transport knows about a method of the API.
type method struct {
	scope caller.Scope
	// replay makes an answer of a stored one, for methods that change something
	// and answer once.
	replay func([]byte) (connect.AnyResponse, error)
}

// methods has all of them. A method that is not here is refused.
var methods = map[string]method{
	rpc.ServerServiceGetServerProcedure: {scope: caller.Read},
	rpc.ServerServiceGetUsageProcedure:  {scope: caller.Read},

	rpc.CodebaseServiceCreateCodebaseProcedure:   {caller.Write, replay[baileyv1.Codebase]},
	rpc.CodebaseServiceGetCodebaseProcedure:      {scope: caller.Read},
	rpc.CodebaseServiceListCodebasesProcedure:    {scope: caller.Read},
	rpc.CodebaseServiceDeleteCodebaseProcedure:   {caller.Write, replay[emptypb.Empty]},
	rpc.CodebaseServiceUploadCodebaseProcedure:   {scope: caller.Write},
	rpc.CodebaseServiceDownloadCodebaseProcedure: {scope: caller.Read},
	rpc.CodebaseServiceImportCodebaseProcedure:   {caller.Write, replay[baileyv1.Codebase]},

	rpc.SandboxServiceCreateSandboxProcedure:        {caller.Write, replay[baileyv1.Sandbox]},
	rpc.SandboxServiceBatchCreateSandboxesProcedure: {caller.Write, replay[baileyv1.BatchCreateSandboxesResponse]},
	rpc.SandboxServiceGetSandboxProcedure:           {scope: caller.Read},
	rpc.SandboxServiceListSandboxesProcedure:        {scope: caller.Read},
	rpc.SandboxServiceStartSandboxProcedure:         {caller.Write, replay[baileyv1.Sandbox]},
	rpc.SandboxServiceStopSandboxProcedure:          {caller.Write, replay[baileyv1.Sandbox]},
	rpc.SandboxServicePauseSandboxProcedure:         {caller.Write, replay[baileyv1.Sandbox]},
	rpc.SandboxServiceResumeSandboxProcedure:        {caller.Write, replay[baileyv1.Sandbox]},
	rpc.SandboxServiceDestroySandboxProcedure:       {caller.Write, replay[emptypb.Empty]},
	rpc.SandboxServiceCreateSnapshotProcedure:       {caller.Write, replay[baileyv1.Snapshot]},
	rpc.SandboxServiceListSnapshotsProcedure:        {scope: caller.Read},
	rpc.SandboxServiceDeleteSnapshotProcedure:       {caller.Write, replay[emptypb.Empty]},
	rpc.SandboxServiceExportSnapshotProcedure:       {scope: caller.Read},
	rpc.SandboxServiceForkSandboxProcedure:          {caller.Write, replay[baileyv1.ForkSandboxResponse]},
	rpc.SandboxServiceRollbackSandboxProcedure:      {caller.Write, replay[baileyv1.Sandbox]},
	rpc.SandboxServiceDiffSandboxProcedure:          {scope: caller.Read},
	rpc.SandboxServiceApplySandboxProcedure:         {caller.Write, replay[baileyv1.ApplySandboxResponse]},
	rpc.SandboxServiceUpdateSandboxProcedure:        {caller.Write, replay[baileyv1.Sandbox]},
	rpc.SandboxServiceGetStatsProcedure:             {scope: caller.Read},
	rpc.SandboxServiceWatchEventsProcedure:          {scope: caller.Read},
	rpc.SandboxServiceExposePortProcedure:           {caller.Write, replay[baileyv1.ExposedPort]},
	rpc.SandboxServiceUnexposePortProcedure:         {caller.Write, replay[emptypb.Empty]},

	rpc.ExecServiceRunExecProcedure:        {caller.Exec, replay[baileyv1.RunExecResponse]},
	rpc.ExecServiceStartExecProcedure:      {caller.Exec, replay[baileyv1.Exec]},
	rpc.ExecServiceGetExecProcedure:        {scope: caller.Read},
	rpc.ExecServiceListExecsProcedure:      {scope: caller.Read},
	rpc.ExecServiceWaitExecProcedure:       {scope: caller.Read},
	rpc.ExecServiceAttachExecProcedure:     {scope: caller.Read},
	rpc.ExecServiceStreamExecProcedure:     {scope: caller.Exec},
	rpc.ExecServiceWriteStdinProcedure:     {caller.Exec, replay[baileyv1.WriteStdinResponse]},
	rpc.ExecServiceResizeTerminalProcedure: {caller.Exec, replay[baileyv1.ResizeTerminalResponse]},
	rpc.ExecServiceSignalExecProcedure:     {caller.Exec, replay[baileyv1.SignalExecResponse]},

	rpc.SessionServiceCreateSessionProcedure:    {caller.Exec, replay[baileyv1.Session]},
	rpc.SessionServiceGetSessionProcedure:       {scope: caller.Read},
	rpc.SessionServiceListSessionsProcedure:     {scope: caller.Read},
	rpc.SessionServiceCloseSessionProcedure:     {caller.Exec, replay[emptypb.Empty]},
	rpc.SessionServiceRunSessionProcedure:       {caller.Exec, replay[baileyv1.RunExecResponse]},
	rpc.SessionServiceStreamSessionProcedure:    {scope: caller.Exec},
	rpc.SessionServiceInterruptSessionProcedure: {caller.Exec, replay[baileyv1.Session]},

	rpc.FileServiceStatFileProcedure:        {scope: caller.Read},
	rpc.FileServiceListFilesProcedure:       {scope: caller.Read},
	rpc.FileServiceGlobFilesProcedure:       {scope: caller.Read},
	rpc.FileServiceReadFileProcedure:        {scope: caller.Read},
	rpc.FileServiceWriteFileProcedure:       {caller.Write, replay[baileyv1.FileInfo]},
	rpc.FileServiceDownloadFileProcedure:    {scope: caller.Read},
	rpc.FileServiceUploadFileProcedure:      {scope: caller.Write},
	rpc.FileServiceMakeDirectoryProcedure:   {caller.Write, replay[baileyv1.FileInfo]},
	rpc.FileServiceRemoveFileProcedure:      {caller.Write, replay[emptypb.Empty]},
	rpc.FileServiceMoveFileProcedure:        {caller.Write, replay[baileyv1.FileInfo]},
	rpc.FileServiceUploadArchiveProcedure:   {scope: caller.Write},
	rpc.FileServiceDownloadArchiveProcedure: {scope: caller.Read},
	rpc.FileServiceWatchFilesProcedure:      {scope: caller.Read},
}

func replay[T any, P interface {
	*T
	proto.Message
}](data []byte) (connect.AnyResponse, error) {
	m := new(T)
	if err := proto.Unmarshal(data, P(m)); err != nil {
		return nil, err
	}
	return connect.NewResponse(m), nil
}
