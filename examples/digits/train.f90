! SPDX-License-Identifier: Apache-2.0
! Trains the model in the folder of its first argument on 1,408 digits and looks at 384 others.
program train
  use, intrinsic :: iso_c_binding
  use mpt
  implicit none
  real(c_float), target :: images(64, 1792)
  integer(c_int64_t), target :: labels(1792)
  real(c_float), pointer :: logits(:)
  type(mpt_trainer) :: trainer
  type(mpt_metrics) :: result
  character(4096) :: folder
  integer :: epoch, row, i, right, unit

  open (newunit=unit, file="images.bin", access="stream", form="unformatted", status="old")
  read (unit) images
  close (unit)
  open (newunit=unit, file="labels.bin", access="stream", form="unformatted", status="old")
  read (unit) labels
  close (unit)
  call get_command_argument(1, folder)
  call trainer%open(trim(folder))

  do epoch = 0, 11
    do row = 1, 1408, 32
      result = trainer%step([mpt_input("x", images(:, row:row + 31)), mpt_input("labels", labels(row:row + 31))])
    end do
    print "(a, i0, a, f5.3, a, i0)", "epoch ", epoch, ": loss ", result%loss, ", loss scale ", int(result%loss_scale)
  end do

  right = 0
  do row = 1409, 1792, 32
    result = trainer%run("predict", [mpt_input("x", images(:, row:row + 31))])
    logits => trainer%output("predict", "logits")
    do i = 0, 31
      if (maxloc(logits(10 * i + 1:10 * i + 10), 1) - 1 == labels(row + i)) right = right + 1
    end do
  end do
  print "(a, f5.3)", "accuracy on digits it has not seen: ", right / 384.0
  call trainer%save("trained.safetensors")
  call trainer%close()
end program
