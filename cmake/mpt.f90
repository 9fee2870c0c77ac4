! SPDX-License-Identifier: Apache-2.0
! Training a compiled model from Fortran 2018: the part of mpt-c/runtime.h that a trainer needs. Arrays are handed over as they lie in
! memory: real(real32) x(64, 32) is the model's input [32, 64].
module mpt
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: error_unit
  implicit none
  private
  public :: mpt_trainer, mpt_metrics, mpt_input, mpt_argument

  type, bind(c) :: mpt_metrics
    real(c_double) :: loss, loss_scale, grad_norm
    integer(c_int32_t) :: skipped
  end type

  !> An input by name: mpt_input(name, array). The array must live, and be a target, until the call is over.
  type :: mpt_argument
    character(:), allocatable :: name
    integer(c_int64_t) :: extents(8)
    integer(c_int32_t) :: dtype, rank
    type(c_ptr) :: values
  end type

  type :: mpt_trainer
    private
    type(c_ptr) :: model = c_null_ptr, handle = c_null_ptr
  contains
    procedure :: open => trainer_open, step => trainer_step, run => trainer_run, output => trainer_output
    procedure :: set_learning_rate, save => trainer_save, load => trainer_load, save_onnx, close => trainer_close
    final :: trainer_final
  end type

  interface mpt_input
    module procedure input_real32, input_real64, input_int32, input_int64
  end interface

  type, bind(c) :: c_tensor
    type(c_ptr) :: name
    integer(c_int32_t) :: dtype, rank
    type(c_ptr) :: shape, values
  end type

  interface
    function c_model_load(path, model) bind(c, name="mpt_model_load") result(status)
      import; character(kind=c_char), intent(in) :: path(*); type(c_ptr), intent(out) :: model; integer(c_int) :: status
    end function
    function c_create(model, options, trainer) bind(c, name="mpt_trainer_create") result(status)
      import; type(c_ptr), value :: model, options; type(c_ptr), intent(out) :: trainer; integer(c_int) :: status
    end function
    subroutine c_model_destroy(model) bind(c, name="mpt_model_destroy")
      import; type(c_ptr), value :: model
    end subroutine
    subroutine c_trainer_destroy(trainer) bind(c, name="mpt_trainer_destroy")
      import; type(c_ptr), value :: trainer
    end subroutine
    function c_run(trainer, name, inputs, count, metrics) bind(c, name="mpt_trainer_run") result(status)
      import; type(c_ptr), value :: trainer; character(kind=c_char), intent(in) :: name(*); type(c_tensor), intent(in) :: inputs(*)
      integer(c_int64_t), value :: count; type(mpt_metrics), intent(out) :: metrics; integer(c_int) :: status
    end function
    function c_output(trainer, name, output, tensor) bind(c, name="mpt_trainer_output") result(status)
      import; type(c_ptr), value :: trainer; character(kind=c_char), intent(in) :: name(*), output(*)
      type(c_tensor), intent(out) :: tensor; integer(c_int) :: status
    end function
    function c_set_rate(trainer, rate) bind(c, name="mpt_trainer_set_learning_rate") result(status)
      import; type(c_ptr), value :: trainer; real(c_double), value :: rate; integer(c_int) :: status
    end function
    function c_save(trainer, path) bind(c, name="mpt_trainer_save") result(status)
      import; type(c_ptr), value :: trainer; character(kind=c_char), intent(in) :: path(*); integer(c_int) :: status
    end function
    function c_load(trainer, path) bind(c, name="mpt_trainer_load") result(status)
      import; type(c_ptr), value :: trainer; character(kind=c_char), intent(in) :: path(*); integer(c_int) :: status
    end function
    function c_save_onnx(trainer, path, averaged) bind(c, name="mpt_trainer_save_onnx") result(status)
      import; type(c_ptr), value :: trainer; character(kind=c_char), intent(in) :: path(*)
      integer(c_int32_t), value :: averaged; integer(c_int) :: status
    end function
    function c_last_error() bind(c, name="mpt_last_error") result(text)
      import; type(c_ptr) :: text
    end function
    function c_strlen(text) bind(c, name="strlen") result(length)
      import; type(c_ptr), value :: text; integer(c_size_t) :: length
    end function
  end interface

contains

  !> A folder that mpt-opt wrote. Every procedure stops the program with the runtime's message, unless `stat` takes the status.
  subroutine trainer_open(self, path, stat)
    class(mpt_trainer), intent(inout) :: self
    character(*), intent(in) :: path
    integer, intent(out), optional :: stat
    integer(c_int) :: status
    call self%close()
    status = c_model_load(path // c_null_char, self%model)
    if (status == 0) status = c_create(self%model, c_null_ptr, self%handle)
    call report(status, stat)
  end subroutine

  function trainer_step(self, inputs, stat) result(metrics)
    class(mpt_trainer), intent(in) :: self
    type(mpt_argument), intent(in), target :: inputs(:)
    integer, intent(out), optional :: stat
    type(mpt_metrics) :: metrics
    metrics = self%run("step", inputs, stat)
  end function

  !> Runs any function: "evaluate", "predict", "gradients".
  function trainer_run(self, function, inputs, stat) result(metrics)
    class(mpt_trainer), intent(in) :: self
    character(*), intent(in) :: function
    type(mpt_argument), intent(in), target :: inputs(:)
    integer, intent(out), optional :: stat
    type(mpt_metrics) :: metrics
    type(c_tensor) :: tensors(size(inputs))
    character(kind=c_char), target :: names(256, size(inputs))
    integer :: i, j
    do i = 1, size(inputs)
      do j = 1, min(len(inputs(i)%name), 255)
        names(j, i) = inputs(i)%name(j:j)
      end do
      names(j, i) = c_null_char
      tensors(i) = c_tensor(c_loc(names(1, i)), inputs(i)%dtype, inputs(i)%rank, c_loc(inputs(i)%extents), inputs(i)%values)
    end do
    call report(c_run(self%handle, function // c_null_char, tensors, int(size(inputs), c_int64_t), metrics), stat)
  end function

  !> A float32 result of a function's last run, good until it runs again.
  function trainer_output(self, function, name, stat) result(values)
    class(mpt_trainer), intent(in) :: self
    character(*), intent(in) :: function, name
    integer, intent(out), optional :: stat
    real(c_float), pointer :: values(:)
    integer(c_int64_t), pointer :: extents(:)
    type(c_tensor) :: tensor
    integer(c_int) :: status
    nullify (values)
    status = c_output(self%handle, function // c_null_char, name // c_null_char, tensor)
    call report(status, stat)
    if (status /= 0) return
    if (tensor%dtype /= 1) error stop "mpt: expected a float32 result"
    call c_f_pointer(tensor%shape, extents, [tensor%rank])
    call c_f_pointer(tensor%values, values, [product(extents)])
  end function

  subroutine set_learning_rate(self, rate, stat)
    class(mpt_trainer), intent(in) :: self
    double precision, intent(in) :: rate
    integer, intent(out), optional :: stat
    call report(c_set_rate(self%handle, rate), stat)
  end subroutine

  subroutine trainer_save(self, path, stat)
    class(mpt_trainer), intent(in) :: self
    character(*), intent(in) :: path
    integer, intent(out), optional :: stat
    call report(c_save(self%handle, path // c_null_char), stat)
  end subroutine

  subroutine trainer_load(self, path, stat)
    class(mpt_trainer), intent(in) :: self
    character(*), intent(in) :: path
    integer, intent(out), optional :: stat
    call report(c_load(self%handle, path // c_null_char), stat)
  end subroutine

  subroutine save_onnx(self, path, stat)
    class(mpt_trainer), intent(in) :: self
    character(*), intent(in) :: path
    integer, intent(out), optional :: stat
    call report(c_save_onnx(self%handle, path // c_null_char, 0_c_int32_t), stat)
  end subroutine

  subroutine trainer_close(self)
    class(mpt_trainer), intent(inout) :: self
    call c_trainer_destroy(self%handle)
    call c_model_destroy(self%model)
    self%handle = c_null_ptr
    self%model = c_null_ptr
  end subroutine

  subroutine trainer_final(self)
    type(mpt_trainer), intent(inout) :: self
    call self%close()
  end subroutine

  subroutine report(status, stat)
    integer(c_int), intent(in) :: status
    integer, intent(out), optional :: stat
    character(kind=c_char), pointer :: text(:)
    if (present(stat)) then
      stat = status
    else if (status /= 0) then
      call c_f_pointer(c_last_error(), text, [c_strlen(c_last_error())])
      write (error_unit, "(*(a))") "mpt: ", text
      error stop 1, quiet=.true.
    end if
  end subroutine

  function argument(name, dtype, extents, values) result(made)
    character(*), intent(in) :: name
    integer, intent(in) :: dtype, extents(:)
    type(c_ptr), intent(in) :: values
    type(mpt_argument) :: made
    if (len(name) > 255) error stop "mpt: expected a name of at most 255 characters"
    made%name = name
    made%dtype = int(dtype, c_int32_t)
    made%rank = size(extents)
    made%extents(:size(extents)) = extents(size(extents):1:-1)
    made%values = values
  end function

  function input_real32(name, array) result(made)
    character(*), intent(in) :: name
    real(c_float), intent(in), target, contiguous :: array(..)
    type(mpt_argument) :: made
    made = argument(name, 1, shape(array), c_loc(array))
  end function

  function input_real64(name, array) result(made)
    character(*), intent(in) :: name
    real(c_double), intent(in), target, contiguous :: array(..)
    type(mpt_argument) :: made
    made = argument(name, 11, shape(array), c_loc(array))
  end function

  function input_int32(name, array) result(made)
    character(*), intent(in) :: name
    integer(c_int32_t), intent(in), target, contiguous :: array(..)
    type(mpt_argument) :: made
    made = argument(name, 6, shape(array), c_loc(array))
  end function

  function input_int64(name, array) result(made)
    character(*), intent(in) :: name
    integer(c_int64_t), intent(in), target, contiguous :: array(..)
    type(mpt_argument) :: made
    made = argument(name, 7, shape(array), c_loc(array))
  end function
end module
